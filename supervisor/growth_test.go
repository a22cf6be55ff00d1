package supervisor_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// manyTools returns a supervisor of n plain tools, and these.
func manyTools(n int) (*supervisor.Supervisor, []manifest.Tool) {
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Simple: func(t manifest.Tool) (supervisor.Provider, error) { return &fake{tool: t}, nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	tools := make([]manifest.Tool, n)
	for i := range tools {
		tools[i] = manifest.Tool{
			Name: fmt.Sprintf("tool%05d", i), Kind: manifest.Simple, Path: "/bin/true", InputSchema: []byte(`{"type":"object"}`),
			Run: manifest.Run{Env: map[string]string{"A": "B"}},
		}
	}
	s.Apply(tools)
	return s, tools
}

// changing returns what applies n tools again, of which one has changed.
func changing(tb testing.TB, n int) func() {
	tb.Helper()
	s, tools := manyTools(n)
	round := 0
	return func() {
		round++
		tools[n/2].Description = fmt.Sprint(round)
		if diff := s.Apply(tools); len(diff.Changed) != 1 || diff.Kept != n-1 {
			tb.Fatalf("%+v", diff)
		}
	}
}

// SPEC L3, S1: a reload makes nothing again of the tools that have not changed.
func TestL3AReloadMakesNothingOfUnchangedToolsAgain(t *testing.T) {
	const n = 2000
	if got := testing.AllocsPerRun(5, changing(t, n)) / n; got > 0.2 {
		t.Errorf("%.2f allocations for each tool that has not changed", got)
	}
}

// S1, S2: after a reload of one tool nobody waits until what rules know of all the others is made again.
func TestS1AReloadLeavesTheTargetsOfUnchangedTools(t *testing.T) {
	const n = 2000
	s, tools := manyTools(n)
	caller := func() {
		c := s.Catalog()
		c.Named("tool00001")
		c.TargetOfPrompt("none")
		for i := range tools {
			if c.Target(tools[i].Name) == nil {
				t.Fatal("a tool has no target")
			}
		}
	}
	caller()
	before := s.Catalog().Target("tool00001")
	round := 0
	made := testing.AllocsPerRun(5, func() {
		round++
		tools[n/2].Description = fmt.Sprint(round)
		tools[n/2].Annotations = &mcp.ToolAnnotations{ReadOnlyHint: round%2 == 0}
		s.Apply(tools)
		caller()
	})
	if made /= n; made > 0.3 {
		t.Errorf("%.2f allocations for each tool that has not changed", made)
	}
	if s.Catalog().Target("tool00001") != before {
		t.Error("the target of a tool that has not changed is another one")
	}
}

// SPEC H2, N2: after a reload of one tool everything is served as if all had been looked at again.
func TestH2AChangedToolTakesThePlaceOfTheOldOne(t *testing.T) {
	box := newFakePeer("box", peer.Offers{Known: true, Tools: listed("shared", "twice", "packed")})
	s := governing(map[string]supervisor.Provider{"box": box}, nil)
	tools := []manifest.Tool{tool("a"), capsuleTool("box", ""), tool("shared"), tool("Twice"), aliasOf("z", "shared"), tool("packed", func(t *manifest.Tool) { t.Run.Setup.Package = "p" })}
	shown := func() string {
		var text strings.Builder
		c := s.Catalog()
		for _, name := range servedNames(s) {
			answer, err := s.Call(t.Context(), peer.Call{Tool: name})
			said, _ := json.Marshal(answer.Result)
			fmt.Fprintln(&text, name, c.Of(name), string(said), err, c.Target(name).Names(), c.Target(name).Classes(), allowed(s, name))
		}
		return fmt.Sprint(text.String(), c.Tools, c.Known(), s.Problems()) // of tools, where they are
	}
	for i := range tools {
		s.Apply(tools)
		before := s.Catalog()
		tools[i].Description = "new"
		tools[i].Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
		if diff := s.Apply(tools); !slices.Equal(diff.Changed, []string{tools[i].Name}) {
			t.Fatalf("%s: %+v", tools[i].Name, diff)
		}
		select {
		case <-before.Changed:
		default:
			t.Error("the old catalog does not know that it is old")
		}
		got := shown()
		s.Refresh()
		if whole := shown(); got != whole {
			t.Errorf("%s has changed, and served is:\n%s\nwant:\n%s", tools[i].Name, got, whole)
		}
		if !strings.Contains(got, "new") && tools[i].Name == "a" {
			t.Errorf("the old tool is served: %s", got)
		}
	}
}

func BenchmarkApplyOneChanged(b *testing.B) {
	apply := changing(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		apply()
	}
}
