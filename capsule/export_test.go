package capsule

import "time"

// maxHello is that of package handshake.
const maxHello = 128

// Reload is a change of files that happens now.
func (c *Capsule) Reload(reason string) { c.trigger(trigger{reason, time.Now()}) }
