package offers_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/orla-project/orla/capsule/offers"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/manifest"
)

// listOf is a list of n tools with schemas of a usual size, one of which is another in each version.
func listOf(n, version int) (said records.Offered) {
	for i := range n {
		text := "does the thing"
		if i == n/2 {
			text = fmt.Sprint("does the thing ", version)
		}
		said.Tools = append(said.Tools, json.RawMessage(fmt.Sprintf(`{"name":"tool-%d","description":%q,"annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["path"],`+
			`"properties":{"path":{"type":"string","description":"The file to read"},"lines":{"type":"integer","minimum":1},"mode":{"enum":["a","b"]}}}}`, i, text)))
	}
	return said
}

// BenchmarkOneOfManyToolsChanges is a list_changed of a server with many tools, with and without pins.
func BenchmarkOneOfManyToolsChanges(b *testing.B) {
	for _, pin := range []manifest.Pin{manifest.PinOff, manifest.PinHold} {
		for _, n := range []int{5_000, 10_000} {
			b.Run(fmt.Sprint("pin=", pin, "/", n), func(b *testing.B) {
				tool := manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: "/nowhere/notes.yaml"}
				tool.Runtime.Pin = pin
				o := offers.New(tool, nil, pins.NewStore(b.TempDir(), slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
				lists := []records.Offered{listOf(n, 0), listOf(n, 1), listOf(n, 2)}
				o.Set(lists[0])
				for i := 1; b.Loop(); i++ {
					o.Set(lists[1+i%2])
				}
			})
		}
	}
}
