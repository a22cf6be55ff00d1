package capsule

import "time"

// Reload is a change of files that happens now.
func (c *Capsule) Reload(reason string) { c.trigger(trigger{reason, time.Now()}) }
