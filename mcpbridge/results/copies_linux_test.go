package results

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SPEC L4: to keep large structured content outside of the heap takes nothing of the heap.
func TestL4ToKeepAnAnswerTakesNoCopy(t *testing.T) {
	const size = 4 << 20
	raw := json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`)
	s := NewStore(unlimited)
	defer s.Close()
	c := NewCutter(s, 1<<20, Keeper{Caller: "ann"})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res := c.Bound(&mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: raw}, false)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size/4 {
		t.Errorf("to keep %d bytes takes %d", size, took)
	}
	if len(res.Content) == 0 {
		t.Error("there is no link")
	}
}
