package governance_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// many returns n tools, and a policy that blocks each of them for somebody else.
func many(n int) *manifest.Result {
	all := &manifest.Result{}
	policy := manifest.Policy{Reference: manifest.Reference{Name: "p", At: "a.yaml:1:1"}, Systems: []manifest.Reference{{Name: "eve", At: "a.yaml:2:1"}}}
	for i := range n {
		name := fmt.Sprintf("Tool%d__x", i)
		all.Tools = append(all.Tools, manifest.Tool{Name: name, Kind: manifest.Simple, InputSchema: []byte(`{"type":"object"}`)})
		policy.Blocked = append(policy.Blocked, manifest.Reference{Name: name, At: fmt.Sprintf("a.yaml:%d:1", i)})
	}
	all.Rules.Policies = []manifest.Policy{policy}
	return all
}

// one is a provider of one tool.
type one struct{ tool manifest.Tool }

func (o one) Tools() []*mcp.Tool { return []*mcp.Tool{o.tool.Listed()} }

func (one) Call(context.Context, peer.Call) (peer.Answer, error) {
	return peer.Answer{Result: &mcp.CallToolResult{}}, nil
}

// served returns a supervisor of tools with the gate; nil for none.
func served(tb testing.TB, g *governance.Gate, tools []manifest.Tool) *supervisor.Supervisor {
	tb.Helper()
	opts := supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Simple: func(t manifest.Tool) (supervisor.Provider, error) { return one{t}, nil }},
		Log:   slog.New(slog.DiscardHandler),
	}
	if g != nil {
		opts.Admit, opts.AdmitRequest, opts.Published = g.Admit, g.AdmitRequest, g.Listed
	}
	s := supervisor.New(opts)
	if diff := s.Apply(tools); len(diff.Failed) > 0 {
		tb.Fatal(diff.Failed)
	}
	return s
}

// SPEC-TOOLS 8.3, S1: n tools and n names in rules cost as much for each as few do, before anything runs, at a reload
// and when the tools are known.
func TestS1NamesInRulesAreLookedUp(t *testing.T) {
	cfg := configured(t, config.CallerConfig{Name: "eve"})
	cfg.Auth.Tokens = []config.TokenConfig{{Name: "eve"}}
	t.Run("check", func(t *testing.T) {
		costtest.Check(t, 4000, func(n int) func() {
			all := many(n)
			return func() {
				governance.Check(all, cfg, nil)
				if len(all.Problems) > 0 {
					t.Fatal(all.Problems[0])
				}
			}
		})
	})
	t.Run("set", func(t *testing.T) {
		costtest.Check(t, 1500, func(n int) func() {
			all := many(n)
			s := served(t, nil, all.Tools)
			return func() {
				var g governance.Gate
				g.Set(all, cfg)
				g.Listed(s.Catalog())
				if g.Denies() {
					t.Fatal(g.Problems())
				}
			}
		})
	})
}

// SPEC-TOOLS 8.3, S1: the same holds for n names that no tool has, which are looked for in each new catalog.
func TestS1NamesThatNothingHasAreLookedUp(t *testing.T) {
	cfg := configured(t, config.CallerConfig{Name: "eve"})
	costtest.Check(t, 1500, func(n int) func() {
		all := many(n)
		blocked := all.Rules.Policies[0].Blocked
		for i := range blocked {
			blocked[i].Name = fmt.Sprint("gone", i)
		}
		var g governance.Gate
		g.Set(all, cfg)
		return func() {
			if g.Listed(served(t, nil, all.Tools).Catalog()); !g.Denies() {
				t.Fatal("rules that name nothing deny nothing")
			}
		}
	})
}

// The difference to none is what the gate adds to a call: without rules at most 1 % of a call, with 1 000 rules and
// 10 000 tools at most 3 µs (SPEC-TOOLS 8.3). A call of a capsule over HTTP takes about 100 µs of processor time.
func BenchmarkT83Gate(b *testing.B) {
	all := many(10_000)
	run := func(b *testing.B, g *governance.Gate) {
		s := served(b, g, all.Tools)
		if g != nil && g.Denies() {
			b.Fatal(g.Problems())
		}
		call := peer.Call{Caller: "ann", Groups: []string{"staff"}, Args: []byte(`{}`)}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			call.Tool = all.Tools[i%len(all.Tools)].Name
			if _, err := s.Call(b.Context(), call); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("none", func(b *testing.B) { run(b, nil) })
	b.Run("without rules", func(b *testing.B) {
		var g governance.Gate
		cfg := configured(b)
		g.Set(&manifest.Result{Tools: all.Tools}, cfg)
		run(b, &g)
	})
	b.Run("1000 rules", func(b *testing.B) {
		var g governance.Gate
		cfg := configured(b,
			config.CallerConfig{Name: "ann", Roles: []string{"all"}, Limits: config.LimitsConfig{CallsInFlight: 100}},
			config.CallerConfig{Name: "eve"})
		ruled := &manifest.Result{Tools: all.Tools}
		ruled.Rules.Roles = []manifest.Role{{Reference: manifest.Reference{Name: "all", At: "a.yaml:1:1"}, Permissions: []manifest.Right{{Tool: "*"}}}}
		for i, tool := range all.Tools[:1000] {
			at := manifest.Reference{Name: tool.Name, At: fmt.Sprintf("a.yaml:%d:1", i)}
			ruled.Rules.Permissions = append(ruled.Rules.Permissions, manifest.Permission{
				Reference: at, Tool: at, Required: []manifest.Right{{Tool: tool.Name}},
				Operations: []manifest.OperationRule{{Class: "*", Verdict: manifest.Allow}},
			})
		}
		g.Set(ruled, cfg)
		run(b, &g)
	})
}
