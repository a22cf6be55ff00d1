package launch_test

import (
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// TestK3LimitsAreTold: what holds of a capsule's limits, and what does not, is
// said in one line (SPEC K3).
func TestK3LimitsAreTold(t *testing.T) {
	all := cgroup.Limits{Memory: 256 << 20, CPUs: 0.5, Pids: 64}
	for _, c := range []struct {
		wanted  cgroup.Limits
		applied launch.Applied
		text    string
		loose   []string
	}{
		{all, launch.Applied{Tree: cgroup.Limits{Memory: 256 << 20, CPUs: 0.5, Pids: 64}}, "memory 256 MiB, cpus 0.5, pids 64", nil},
		{all, launch.Applied{Each: cgroup.Limits{Memory: 256 << 20}}, "memory 256 MiB for each process; not bounded: cpus, pids", []string{"cpus", "pids"}},
		{all, launch.Applied{}, "not bounded: memory, cpus, pids", []string{"memory", "cpus", "pids"}},
		{cgroup.Limits{Memory: 1<<30 + 1}, launch.Applied{Tree: cgroup.Limits{Memory: 1<<30 + 1}}, "memory 1073741825 bytes", nil},
		{cgroup.Limits{Pids: 1}, launch.Applied{Tree: cgroup.Limits{Pids: 1}}, "pids 1", nil},
	} {
		text, loose := c.applied.Text(c.wanted)
		if text != c.text || !slices.Equal(loose, c.loose) {
			t.Errorf("%+v.Text(%+v) = %q, %q; want %q, %q", c.applied, c.wanted, text, loose, c.text, c.loose)
		}
	}
}
