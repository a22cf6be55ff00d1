package grpc_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// SPEC S2, SPEC-TOOLS 3.3: a large message is read into memory once. Room for it grows with what has come.
func TestT33AMessageIsNotCopied(t *testing.T) {
	const size = 8 << 20
	large := toolOf(t, needs.Start(t, "grpc").Addr, manifest.Auth{}, 2*size)
	if _, err := call(t.Context(), large, `{}`); err != nil { // connects
		t.Fatal(err)
	}
	for range 2 {
		runtime.GC() // what is pooled is forgotten after the second one
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := call(t.Context(), large, fmt.Sprintf(`{"do":"big","bytes":%d}`, size))
	runtime.ReadMemStats(&after)
	if err != nil || len(res.Content[0].(*mcp.TextContent).Text) != size {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*size {
		t.Errorf("an answer of %d bytes takes %d", size, took)
	}
}
