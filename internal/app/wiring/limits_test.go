package wiring

import (
	"context"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/manifest"
)

// limitedProcess is a Process of which only the limits matter.
type limitedProcess struct {
	launch.Process
	applied launch.Applied
}

func (p limitedProcess) Applied() launch.Applied { return p.applied }

type startsLimited struct{ applied launch.Applied }

func (s startsLimited) Start(context.Context, launch.Spec) (launch.Process, error) {
	return limitedProcess{applied: s.applied}, nil
}

// toolIn is a tool with an isolation mode.
func toolIn(mode manifest.IsolationMode) manifest.Tool {
	return manifest.Tool{Name: "a", Kind: manifest.Simple, Source: "tools/a/tool.yaml", Isolation: manifest.Isolation{Mode: mode}}
}

// SPEC-TOOLS 7, issue 6: what is shown of a tool's limits is what its last
// process was held by, and not what was asked for.
func TestT7LimitsThatAreShownAreThoseThatHeld(t *testing.T) {
	cfg := &config.Loaded{Config: config.Defaults()}
	tool := toolIn(manifest.IsolationSandboxed)
	if err := discovery.ApplyTerms(&tool, cfg); err != nil {
		t.Fatal(err)
	}
	var m LastProcesses
	if got := m.Limits(tool); got != notCalled {
		t.Errorf("before the first call: %q", got)
	}
	l := m.record(tool.Name, startsLimited{launch.Applied{Tree: cgroup.Limits{Memory: 64 << 20, Pids: 9}}})
	if got := m.Limits(tool); got != notCalled {
		t.Errorf("before the first call: %q", got)
	}
	if _, err := l.Start(t.Context(), launch.Spec{}); err != nil {
		t.Fatal(err)
	}
	if got, want := m.Limits(tool), "memory 64 MiB, pids 9; not bounded: cpus"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	unbounded := toolIn(manifest.IsolationNone)
	refused := toolIn(manifest.IsolationKubernetes)
	if err := discovery.ApplyTerms(&refused, cfg); err != nil {
		t.Fatal(err)
	}
	module := toolIn(manifest.IsolationWASM)
	module.Resource = &manifest.Resource{WASM: &manifest.WASM{MaxMemory: 64 << 20, Fuel: 1_000_000}}
	for want, tool := range map[string]manifest.Tool{
		"":                              unbounded,
		"memory 64 MiB, fuel 1000000":   module,
		"refused: isolation_mode kuber": refused,
	} {
		if got := m.Limits(tool); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", tool.Isolation.Mode, got, want)
		}
	}
}
