package supervisor_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// many is a supervisor of two peers which offer n resources and templates each. Half of
// them are the same.
func many(n int) *supervisor.Supervisor {
	made := map[string]*fakePeer{}
	for i, name := range []string{"a", "b"} {
		var uris, texts []string
		for j := range n {
			uris = append(uris, fmt.Sprintf("file:///%d", j+i*n/2))
			texts = append(texts, fmt.Sprintf("note:///%d/{id}", j+i*n/2))
		}
		made[name] = newFakePeer(name, reading(resources(uris...), texts...))
	}
	s := peers(made)
	apply(s, "a", "b")
	return s
}

// SPEC S1: a catalog costs in proportion to what it lists.
func TestS1ACatalogCostsInProportion(t *testing.T) {
	costtest.Check(t, 300, func(n int) func() { return many(n).Refresh })
}

// SPEC S1: a read compiles no template, and looks at those alone that it may match.
func TestS1AReadCompilesNoTemplate(t *testing.T) {
	s := many(5000)
	req := peer.Request{Method: "resources/read", Params: json.RawMessage(`{"uri":"note:///77/1"}`)}
	allocs := testing.AllocsPerRun(10, func() {
		if _, err := s.Request(t.Context(), req); err != nil {
			t.Error(err)
		}
	})
	t.Logf("a read among 10000 templates allocates %.0f times", allocs)
	if allocs > 100 {
		t.Errorf("a read among 10000 templates allocates %.0f times", allocs)
	}
}

// SPEC S1: what the aliases of one tool may do is judged in proportion to their number, in each catalog, also if a caller may call none.
func TestS1AliasesOfOneToolCostInProportion(t *testing.T) {
	within := rules.New(manifest.Rules{}, []rules.Binding{{Caller: "ann", Toolsets: []manifest.Reference{{Name: "few"}}}},
		[]rules.Toolset{{Name: "few", Tools: []string{"x*y", "*-z"}}})
	costtest.Check(t, 400, func(n int) func() {
		s := governing(nil, nil)
		tools := make([]manifest.Tool, n)
		for i := range tools {
			tools[i] = aliasOf(fmt.Sprint("alias", i), "t0")
		}
		s.Apply(tools)
		return func() {
			s.Refresh()
			for _, name := range servedNames(s) {
				if within.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target(name)) {
					t.Errorf("a toolset without it has %s", name)
				}
			}
			if got := allowed(s, "another"); len(got) > 0 || !s.Catalog().Named("alias1") {
				t.Errorf("a role for another tool allows %s", got)
			}
		}
	})
}

// SPEC S1: to note whom a read asks does not cost more the more peers there are.
func TestS1TheNameOfAPeerCostsTheSameAmongMany(t *testing.T) {
	costtest.Check(t, 1000, func(n int) func() {
		made, names := map[string]*fakePeer{}, make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("p", i)
			made[names[i]] = newFakePeer(names[i], peer.Offers{Known: true})
		}
		s := peers(made)
		apply(s, names...)
		return func() {
			for _, name := range names {
				if got := s.Catalog().NameOf(made[name]); got != name {
					t.Errorf("%s is called %q", name, got)
				}
			}
			if got := s.Catalog().NameOf(newFakePeer("p0", peer.Offers{})); got != "" {
				t.Errorf("a peer that is not served is called %q", got)
			}
		}
	})
}
