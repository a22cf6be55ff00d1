package capsule

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/manifest"
)

// noteLimits keeps which limits hold for the capsule's processes, and says so in
// the log when that is new (SPEC K3).
func (c *Capsule) noteLimits(held launch.Held) {
	wanted := c.tool.Isolation.Resources
	if wanted == (manifest.Resources{}) {
		return
	}
	text, loose := limitsText(wanted, held)
	if old := c.limits.Swap(&text); old != nil && *old == text {
		return
	}
	log := c.log.Info
	if len(loose) > 0 || held.Each.Memory > 0 {
		log = c.log.Warn // somebody relies on them
	}
	log("limits", slog.String("tool", c.tool.Name), slog.String("limits", text), slog.Any("not_bounded", loose))
}

// limitsText says which limits hold, and names what is not bounded though its
// author wants it to be.
func limitsText(wanted manifest.Resources, held launch.Held) (text string, loose []string) {
	loose = []string{} // [] in the log, not null
	var holds []string
	for _, limit := range []struct {
		name       string
		wanted     bool
		tree, each bool
		text       string
	}{
		{"memory", wanted.Memory > 0, held.Tree.Memory > 0, held.Each.Memory > 0, "memory " + bytesText(wanted.Memory)},
		{"cpus", wanted.CPUs > 0, held.Tree.CPUs > 0, false, fmt.Sprint("cpus ", wanted.CPUs)},
		{"pids", wanted.Pids > 0, held.Tree.Pids > 0, false, fmt.Sprint("pids ", wanted.Pids)},
	} {
		switch {
		case !limit.wanted:
		case limit.tree:
			holds = append(holds, limit.text)
		case limit.each:
			holds = append(holds, limit.text+" for each process")
		default:
			loose = append(loose, limit.name)
		}
	}
	text = strings.Join(holds, ", ")
	if len(loose) > 0 {
		if text != "" {
			text += "; "
		}
		text += "not bounded: " + strings.Join(loose, ", ")
	}
	return text, loose
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
