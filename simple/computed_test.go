//go:build !race

package simple

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/manifest"
)

// SPEC S2: more members than can be flags are refused before they are kept.
func TestS2VeryManyMembersAreRefused(t *testing.T) {
	args := json.RawMessage(`{"a":1` + strings.Repeat(`,"b":null`, 10) + func() string {
		var b strings.Builder
		for n := range maxMembers + 1 {
			fmt.Fprintf(&b, `,"%x":null`, n)
		}
		return b.String()
	}() + "}")
	for _, raw := range []json.RawMessage{args, slices.Concat([]byte(`{"\u0062":1,`), args[1:])} {
		if _, err := buildInput(t.Context(), raw, manifest.ArgumentsFlags); fault.CodeOf(err) != fault.InvalidInput || !strings.Contains(err.Error(), "members") {
			t.Errorf("%.20s: %v", raw, err)
		}
		if in, err := buildInput(t.Context(), raw, manifest.ArgumentsStdin); err != nil || len(in.stdin) != len(raw) {
			t.Errorf("%.20s on stdin: %v", raw, err)
		}
	}
}

// SPEC S2: what a tool prints takes a few times its bytes while it is read, whatever values
// are in it.
func TestS2APrintedResultTakesAFewTimesItsBytes(t *testing.T) {
	many := strings.Repeat("{},", 300_000) + "{}"
	for name, printed := range map[string]string{
		"_meta":                 `{"content":[],"_meta":{"a":[` + many + `]}}`,
		"members of _meta":      `{"content":[],"_meta":{` + numbered(100_000) + `}}`,
		"structuredContent":     `{"structuredContent":{"a":[` + many + `]}}`,
		"members of the result": `{"content":[],` + numbered(100_000) + `}`,
		"blocks":                `{"content":[` + strings.Repeat(`{"type":"text","text":""},`, 9_999) + `{"type":"text","text":""}]}`,
		"no blocks":             `{"content":[` + many + `]}`,
		"_meta of a block":      `{"content":[{"type":"text","text":"","_meta":{"a":[` + many + `]}}]}`,
		"members of a block":    `{"content":[{"type":"text","text":"",` + numbered(100_000) + `}]}`,
		"annotations":           `{"content":[{"type":"text","text":"","annotations":[` + many + `]}]}`,
		"icons":                 `{"content":[{"type":"resource_link","uri":"u","name":"n","icons":[` + many + `]}]}`,
		"content in a block":    `{"content":[{"type":"text","text":"","content":[` + many + `]}]}`,
		"a resource":            `{"content":[{"type":"resource","resource":{"uri":"u","text":"","_meta":{"a":[` + many + `]}}}]}`,
		"data":                  `{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", 250_000) + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			const most = 8
			if took := allocated(func() { _, _ = readResult(t.Context(), []byte(printed)) }); took > most*len(printed) {
				t.Errorf("%d bytes took %d, %d times as many; want %d at most", len(printed), took, took/len(printed), most)
			}
		})
	}
}
