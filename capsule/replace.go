package capsule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
)

// successor is a process that is ready to replace another, or why there is none.
type successor struct {
	in    *incarnation
	err   error
	why   trigger
	order int // see incarnation
	began time.Time

	stderr string // the last lines of a process that did not start
}

var errPanicked = errors.New("a message of the new process made Orla panic; the log has the details")

// replace starts a process while another one serves (SPEC D7b). order is the number of the
// last order of an operator before it.
func (c *Capsule) replace(ctx context.Context, why trigger, order int) chan successor {
	coming := make(chan successor, 1)
	c.log.Info("replacing", "tool", c.tool.Name, "reason", why.reason)
	s := successor{why: why, order: order, began: time.Now()}
	go func() { // attend receives from coming before it returns
		defer recovered.To(c.log, "replace a capsule's process", func(any) {
			if s.in != nil {
				s.in.kill()
			}
			s.in, s.err = nil, errPanicked
			coming <- s
		})
		s.in, s.err = c.begin(ctx, order)
		if s.err == nil {
			if s.err = s.in.greet(ctx); s.err != nil {
				s.in.kill()
				s.stderr = s.in.stderr.Short()
				s.in = nil
			}
		}
		coming <- s
	}()
	return coming
}

// keep says that the process that serves stays, since s has not started.
func (c *Capsule) keep(ctx context.Context, s successor) {
	if ctx.Err() == nil {
		c.log.Error("the new process does not start; keeping the old one", "tool", c.tool.Name, "reason", s.why.reason, "err", s.err)
	}
	c.refuse(s)
}

// succeed lets s take over from in, and returns how to end the goroutines of s. end does so for in, which ends its calls in a
// goroutine of retired.
func (c *Capsule) succeed(ctx context.Context, in *incarnation, s successor, end func(), retired *sync.WaitGroup) (endNew func()) {
	c.stderr.Store(&s.in.stderr)
	c.amend(func(now *status) {
		now.run, now.conn, now.reason = s.in.run(), s.in.conn, s.why.reason
	})
	end()
	retired.Go(func() {
		defer recovered.To(c.log, "end a process that was replaced", func(any) { in.connection.Kill() })
		in.close(c.tool.Runtime.Drain, fault.Wrap(fault.NotReady, errDrained, "%s was replaced and the call did not end within drain_ms (%s); try again", c.tool.Name, c.tool.Runtime.Drain))
	})
	c.log.Info("replaced", "tool", c.tool.Name, "reason", s.why.reason, "pid", s.in.pid(), "old_pid", in.pid())
	return s.in.help(ctx)
}
