package listing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func nameOf(t *mcp.Tool) string { return t.Name }

func plain(*mcp.Tool) (Traits, error) { return Traits{}, nil }

// SPEC-TOOLS 8.6: what is left out of a list is on no page, and a list with nothing left out is the same.
func TestT86OnlyWhatIsKeptIsListed(t *testing.T) {
	var tools []*mcp.Tool
	for i := range 2*pageSize + 1 {
		tools = append(tools, &mcp.Tool{Name: fmt.Sprintf("tool%05d", i), InputSchema: map[string]any{"type": "object"}})
	}
	whole, _ := List(Items[*mcp.Tool]{}, tools, nameOf, plain, nil)
	left := whole.Only(func(t *mcp.Tool) bool { return !strings.HasSuffix(t.Name, "1") })
	want, _ := List(Items[*mcp.Tool]{}, slices.DeleteFunc(slices.Clone(tools), func(t *mcp.Tool) bool { return strings.HasSuffix(t.Name, "1") }), nameOf, plain, nil)
	if len(left.pages) != len(want.pages) {
		t.Fatalf("%d pages, want %d", len(left.pages), len(want.pages))
	}
	for i := range want.pages {
		if string(left.pages[i]) != string(want.pages[i]) {
			t.Errorf("page %d: %.200s, want %.200s", i, left.pages[i], want.pages[i])
		}
	}
	if _, there := left.Find("tool00001"); there {
		t.Error("what is left out is found")
	}
	all := whole.Only(func(*mcp.Tool) bool { return true })
	if &all.pages[0][0] != &whole.pages[0][0] {
		t.Error("a list with nothing left out was made again")
	}
	if none := whole.Only(func(*mcp.Tool) bool { return false }); string(none.pages[0]) != "[]" {
		t.Errorf("an empty list is %s", none.pages[0])
	}
}

// SPEC L3, L2: a page of a list on which nothing has changed is not encoded again.
func TestL3APageThatHasNotChangedIsNotMadeAgain(t *testing.T) {
	var tools []*mcp.Tool
	for i := range 5*pageSize + 1 {
		tools = append(tools, &mcp.Tool{Name: fmt.Sprintf("tool%05d", 2*i), InputSchema: map[string]any{"type": "object"}})
	}
	list := func(before Items[*mcp.Tool], now []*mcp.Tool) Items[*mcp.Tool] {
		t.Helper()
		next, changed := List(before, now, nameOf, plain, func(name string, err error) { t.Errorf("%s: %v", name, err) })
		fresh, _ := List(Items[*mcp.Tool]{}, now, nameOf, plain, nil)
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
	same := func(a, b Items[*mcp.Tool]) string {
		var pages strings.Builder
		for i := range min(len(a.pages), len(b.pages)) {
			fmt.Fprintf(&pages, "%t ", &a.pages[i][0] == &b.pages[i][0])
		}
		return strings.TrimSpace(pages.String())
	}
	first := list(Items[*mcp.Tool]{}, tools)
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
