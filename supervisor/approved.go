package supervisor

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/inflight"
)

// Admitted is what Options.Admit says of a call that it does not refuse.
type Admitted struct {
	// Approve, if not nil, waits until somebody has approved the call. It may change the arguments and the
	// client of the call, which has no place while it waits.
	Approve func(ctx context.Context, call *peer.Call, again Again) error
	// Done, if not nil, is called at the call's end. sent says that the call may have reached its tool.
	Done func(sent bool)
	// Judge, if not nil, says whether the call may still be made, while it waits.
	Judge rejudge.Judge
}

// Again is how a call that has waited goes on.
type Again struct {
	// Place takes back the place of the call. It is called before the call goes on.
	Place func() error
	// Leave gives it up once more, for a call that has to wait after all.
	Leave func() error
	// Target returns what the call would run now; nil if there is no such tool any more.
	Target func() *rules.Target
	// Settle waits until Target is by what the tool's server says now, which may have been started again since.
	Settle func(ctx context.Context) error
}

// A Settler is a Peer whose process may come and go.
type Settler interface {
	// Settle waits until the present process has said what it offers. It starts one that a call would start.
	Settle(ctx context.Context, owner turns.Owner)
}

// approved waits until a call may go on. Meanwhile it takes no place of those that calls in flight share, and
// ends as soon as Orla stops.
func (s *Supervisor) approved(ctx context.Context, one *inflight.Call, call *peer.Call, approve func(context.Context, *peer.Call, Again) error) error {
	target := func() *rules.Target { return s.catalog.Load().Target(call.Tool) }
	if err := one.Park(); err != nil {
		return err
	}
	settle := func(ctx context.Context) error { return s.settle(ctx, call) }
	return approve(ctx, call, Again{one.Resume, one.Park, target, settle})
}

// settle waits until the catalog has what the server of a tool says now, within the tool's timeout.
func (s *Supervisor) settle(ctx context.Context, call *peer.Call) error {
	c := s.catalog.Load()
	e := c.entries[call.Tool]
	if e == nil {
		return nil
	}
	ctx, cancel := within(ctx, e.timeout, fault.Unsent(
		fault.New(fault.NotReady, "%s has not said in time what it offers, and the call may run only by that; make the same call again", call.Tool)))
	defer cancel()
	for before := (*living)(nil); ; {
		server := c.serverOf(e)
		if server.Peer == nil {
			return nil
		}
		if p, is := server.Peer.(Settler); is && server.of != before {
			p.Settle(ctx, call.Owner)
		}
		before = server.of
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if server.offers == server.Offers() {
			return nil
		}
		if c.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
		c = s.catalog.Load()
		if e = c.entries[call.Tool]; e == nil {
			return nil
		}
	}
}

// serverOf returns the provider whose process answers the calls of an entry; none for one without a process of its own.
func (c *Catalog) serverOf(e *entry) server {
	if e.of.tool.Kind == manifest.MCP {
		return c.servers[e.of.tool.Resource.Server]
	}
	return c.servers[e.of.tool.Name]
}

// now returns the tool of a call that has waited, and a context with which the call is made. It may be another tool than
// the one that somebody has approved a call of, so that it is judged.
func (s *Supervisor) now(ctx context.Context, before *entry, call *peer.Call, judge rejudge.Judge) (context.Context, *entry, error) {
	c, e, err := s.successor(ctx, before)
	switch {
	case err != nil:
		return ctx, nil, err
	case e == nil:
		return ctx, nil, fault.New(fault.UnsupportedTool, "there is no tool %q any more", call.Tool)
	case e.withheld != nil:
		return ctx, nil, e.withheld
	case e != before:
		if err := e.check(ctx, call.Args); err != nil {
			return ctx, nil, err
		}
	}
	target := c.targetOf(e)
	ctx, err = rejudge.Of(rejudge.With(ctx, judge, target), target)
	return ctx, e, err
}
