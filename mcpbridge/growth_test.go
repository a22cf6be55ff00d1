package mcpbridge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SPEC L3, L2: a page of a list on which nothing has changed is not encoded again.
func TestL3APageThatHasNotChangedIsNotMadeAgain(t *testing.T) {
	var tools []*mcp.Tool
	for i := range 5*pageSize + 1 {
		tools = append(tools, &mcp.Tool{Name: fmt.Sprintf("tool%05d", 2*i), InputSchema: map[string]any{"type": "object"}})
	}
	list := func(before items[*mcp.Tool], now []*mcp.Tool) items[*mcp.Tool] {
		t.Helper()
		next, changed := listItems(before, now, func(t *mcp.Tool) string { return t.Name }, checkTool, func(name string, err error) { t.Errorf("%s: %v", name, err) })
		fresh, _ := listItems(items[*mcp.Tool]{}, now, func(t *mcp.Tool) string { return t.Name }, checkTool, nil)
		if !changed || len(next.pages) != len(fresh.pages) {
			t.Fatalf("changed: %t, %d pages, want %d", changed, len(next.pages), len(fresh.pages))
		}
		for i := range fresh.pages {
			if string(next.pages[i]) != string(fresh.pages[i]) {
				t.Errorf("page %d differs from that of a list without one before it", i)
			}
		}
		return next
	}
	same := func(a, b items[*mcp.Tool]) string {
		var pages strings.Builder
		for i := range min(len(a.pages), len(b.pages)) {
			fmt.Fprintf(&pages, "%t ", &a.pages[i][0] == &b.pages[i][0])
		}
		return strings.TrimSpace(pages.String())
	}
	first := list(items[*mcp.Tool]{}, tools)
	changed := append([]*mcp.Tool(nil), tools...)
	changed[2*pageSize] = &mcp.Tool{Name: changed[2*pageSize].Name, Description: "another", InputSchema: map[string]any{"type": "object"}}
	second := list(first, changed)
	if got, want := same(first, second), "true true false true true true"; got != want {
		t.Errorf("one tool changed: the pages are the same: %s, want %s", got, want)
	}
	without := append(append([]*mcp.Tool(nil), changed[:4*pageSize]...), changed[4*pageSize+1:]...)
	third := list(second, without)
	if got, want := same(second, third), "true true true true false"; got != want {
		t.Errorf("one tool is gone: the pages are the same: %s, want %s", got, want)
	}
	with := append([]*mcp.Tool{{Name: "a", InputSchema: map[string]any{"type": "object"}}}, without...)
	list(third, with)
}
