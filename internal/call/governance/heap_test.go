//go:build !race

package governance_test

import (
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3: what rules add to a call includes its garbage. The gate makes what judges the call again, its context
// and what counts the call out.
func TestT83ACallWithRulesMakesLittle(t *testing.T) {
	all := many(100)
	made := func(g *governance.Gate) float64 {
		s := served(t, g, all.Tools)
		call := peer.Call{Tool: all.Tools[0].Name, Caller: "ann", Args: []byte(`{}`)}
		return testing.AllocsPerRun(100, func() {
			if _, err := s.Call(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		})
	}
	ruled := &manifest.Result{Tools: all.Tools}
	ruled.Rules.Roles = []manifest.Role{{Reference: manifest.Reference{Name: "all", At: "a.yaml:1:1"}, Permissions: []manifest.Right{{Tool: "*"}}}}
	for i, tool := range all.Tools {
		at := manifest.Reference{Name: tool.Name, At: fmt.Sprintf("a.yaml:%d:1", i)}
		ruled.Rules.Permissions = append(ruled.Rules.Permissions, manifest.Permission{
			Reference: at, Tool: at, Required: []manifest.Right{{Tool: tool.Name}},
			Operations: []manifest.OperationRule{{Class: "*", Verdict: manifest.Allow}},
		})
	}
	var g governance.Gate
	g.Set(ruled, configured(t, config.CallerConfig{Name: "ann", Roles: []string{"all"}, Limits: config.LimitsConfig{CallsInFlight: 100}}, config.CallerConfig{Name: "eve"}))
	none := made(nil)
	if more := made(&g) - none; more > 3 {
		t.Errorf("a call with rules makes %.0f values more than one without a gate; want 3 at most", more)
	}
	var without governance.Gate
	without.Set(&manifest.Result{Tools: all.Tools}, configured(t))
	if more := made(&without) - none; more > 2 {
		t.Errorf("a call without rules makes %.0f values more than one without a gate; want 2 at most", more)
	}
}
