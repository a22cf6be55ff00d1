package supervisor

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// having waits for a catalog that has something. A peer of which nobody knows yet what it offers may
// have it, so that having returns when it is there, or when there is no such peer, or ctx ends
// (SPEC D7a).
func (s *Supervisor) having(ctx context.Context, has func(*Catalog) bool) *Catalog {
	for {
		c := s.catalog.Load()
		if has(c) || c.Known() || c.Wait(ctx) != nil {
			return c
		}
	}
}

// find returns the entry of a tool; nil if there is none.
func (s *Supervisor) find(ctx context.Context, call *peer.Call) (*Catalog, *entry) {
	c := s.catalog.Load()
	if e := c.entries[call.Tool]; e != nil || c.Known() {
		return c, e
	}
	ctx, leave, err := s.Waiting(ctx, call.Owner)
	if err != nil {
		return c, nil
	}
	defer leave()
	c = s.having(ctx, func(c *Catalog) bool { return c.entries[call.Tool] != nil })
	return c, c.entries[call.Tool]
}

// successor returns the entry that has taken the place of e; nil if there is none. The provider that
// follows on e's may have been replaced as well before it could say what it offers: successor waits
// until the present one has said it. An error says that ctx has ended, or that the call may not be
// made any more.
func (s *Supervisor) successor(ctx context.Context, e *entry) (*Catalog, *entry, error) {
	ctx, end := rejudge.While(ctx)
	defer end()
	for {
		c := s.catalog.Load()
		next := c.entries[e.listed.Name]
		server := c.servers[e.of.tool.Name]
		if next != nil || server.Peer == nil || server.offers.Known || server.of == e.of {
			return c, next, nil
		}
		if c.Wait(ctx) != nil {
			return c, nil, fault.Unsent(fault.From(context.Cause(ctx)))
		}
	}
}

// attempts is how an entry answers its calls: one attempt within the timeout,
// and what Wrap puts around it.
func (s *Supervisor) attempts(of manifest.Tool, listed *mcp.Tool, e *entry) Attempt {
	once := func(ctx context.Context, call peer.Call) (peer.Answer, error) {
		ctx, cancel := within(ctx, e.timeout, e.tooLate)
		defer cancel()
		return s.ask(ctx, e, call)
	}
	if s.opts.Wrap == nil {
		return once
	}
	return s.opts.Wrap(of, listed, once)
}

// ask asks a provider. When its manifest changes while the call waits for it,
// its successor is asked, within the same deadline: nothing is lost (SPEC E1).
func (s *Supervisor) ask(ctx context.Context, e *entry, call peer.Call) (peer.Answer, error) {
	for {
		answer, err := e.provider.Call(ctx, call)
		if err == nil || !errors.Is(err, peer.ErrGone) {
			return answer, err
		}
		c, next, late := s.successor(ctx, e)
		if late != nil {
			return peer.Answer{}, late
		}
		if next == nil || next.provider == e.provider {
			return answer, err
		}
		if next.withheld != nil {
			return peer.Answer{}, fault.Unsent(next.withheld)
		}
		if ctx, err = rejudge.Of(ctx, c.targetOf(next)); err != nil {
			return peer.Answer{}, err
		}
		if err := next.check(ctx, call.Args); err != nil {
			return peer.Answer{}, err
		}
		e = next
	}
}
