package supervisor_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// changing returns what applies n tools again, of which one has changed.
func changing(tb testing.TB, n int) func() {
	tb.Helper()
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
	if got := testing.AllocsPerRun(5, changing(t, n)) / n; got > 3 {
		t.Errorf("%.1f allocations for each tool that has not changed", got)
	}
}

func BenchmarkApplyOneChanged(b *testing.B) {
	apply := changing(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		apply()
	}
}
