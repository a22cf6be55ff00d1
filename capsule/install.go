package capsule

import (
	"context"

	"github.com/orla-project/orla/internal/deps"
)

// installing begins the reason of a status while packages are installed.
const installing = "installing dependencies"

// install installs missing packages before a start (SPEC R4). The capsule has no process: it is CREATED, or
// becomes RELOADING.
func (c *Capsule) install(ctx context.Context) error {
	if !c.opts.Packages.Missing() {
		return nil
	}
	if s := c.status.Load(); s.state == Crashed || s.state == Stopped {
		c.become(status{state: Reloading, reason: installing, installs: true})
	}
	defer c.amend(func(s *status) { s.installs = false })
	c.noteInstall("")
	err := c.opts.Packages.Install(ctx, c.noteInstall)
	if _, ok := c.opts.Packages.Env(); err != nil && ok && ctx.Err() == nil {
		c.log.Error("starting with the earlier dependencies", "tool", c.tool.Name, "err", err)
		return nil
	}
	return err
}

// noteInstall publishes the last line of an installer.
func (c *Capsule) noteInstall(line string) {
	reason := installing
	if line != "" {
		reason += ": " + line
	}
	c.amend(func(s *status) { s.reason, s.installs = reason, true })
}

// delayed is a request for another process that waits until packages are installed for it.
type delayed struct {
	deps.Installation // the zero value if nothing is installed
	trigger
}

// delay begins to install what a request for another process needs first, and reports whether there is anything.
func (c *Capsule) delay(ctx context.Context, d *delayed, request trigger) bool {
	if d.Done != nil && !c.opts.Packages.Changed() {
		d.trigger = request // the installation that goes on is for it too
		return true
	}
	d.Stop()
	*d = delayed{}
	if !c.opts.Packages.Missing() {
		return false
	}
	*d = delayed{*c.opts.Packages.Start(ctx), request}
	c.log.Info(installing, "tool", c.tool.Name, "reason", request.reason)
	c.noteInstall("")
	return true
}

// installed ends a delay, and returns the request if it can be followed now. A failed one leaves the process.
func (c *Capsule) installed(d *delayed, order int, err error) *trigger {
	request := d.trigger
	*d = delayed{}
	c.amend(func(s *status) { s.reason, s.installs = "dependencies are installed", false })
	if err == nil {
		return &request
	}
	c.log.Error("dependencies could not be installed; keeping the process", "tool", c.tool.Name, "reason", request.reason, "err", err)
	c.refuse(successor{err: err, why: request, order: order})
	c.amend(func(s *status) { s.reason = err.Error() + "; the process serves with the earlier ones" })
	return nil
}
