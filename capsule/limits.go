package capsule

import (
	"log/slog"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/manifest"
)

// noteLimits keeps which limits are in effect for the capsule's processes, and logs them
// when they change (SPEC K3).
func (c *Capsule) noteLimits(applied launch.Applied) {
	wanted := c.tool.Isolation.Resources
	if wanted == (manifest.Resources{}) {
		return
	}
	text, loose := applied.Text(cgroup.Limits(wanted))
	if old := c.limits.Swap(&text); old != nil && *old == text {
		return
	}
	log := c.log.Info
	if len(loose) > 0 || applied.Each.Memory > 0 {
		log = c.log.Warn // somebody relies on them
	}
	log("limits", slog.String("tool", c.tool.Name), slog.String("limits", text), slog.Any("not_bounded", loose))
}
