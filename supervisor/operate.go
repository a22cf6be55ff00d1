package supervisor

import (
	"context"
	"errors"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// Operator is what an operator can do to a provider that lives. Each method
// returns when it is done, or says why it is not; ctx bounds only the waiting.
// An error that matches peer.ErrGone is one of a provider that is not served any
// more. The methods may be called from any goroutine.
type Operator interface {
	// Stop stops it until Start or Restart, over reloads and restarts of Orla.
	Stop(ctx context.Context) error
	// Start starts it if it is not READY, and returns when it is.
	Start(ctx context.Context) error
	// Restart gives it a new process, and returns when that is READY.
	Restart(ctx context.Context) error
}

// Operate returns what an operator can do to the provider of a manifest. The
// error is a *fault.Error; that of an unknown name matches ErrUnknownTool. What
// is done to a provider whose manifest changes in the meantime is done to its
// successor.
func (s *Supervisor) Operate(name string) (Operator, error) {
	if _, err := s.operator(name); err != nil {
		return nil, err
	}
	return operated{s, name}, nil
}

// operator finds the provider that can be operated now.
func (s *Supervisor) operator(name string) (Operator, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	l, ok := s.living[name]
	if !ok {
		return nil, s.unknown(name)
	}
	if l.operator == nil {
		return nil, fault.New(fault.UnsupportedTool, "%s is a simple tool: each call runs a process of its own, so that there is nothing to stop, start or restart", name)
	}
	return l.operator, nil
}

// unknown is the error for a name that no manifest has. It may be one of the
// tools of a manifest. The caller holds applying.
func (s *Supervisor) unknown(name string) error {
	if e, ok := s.catalog.Load().entries[name]; ok {
		for of, l := range s.living {
			if l.provider == e.provider {
				return fault.Wrap(fault.UnsupportedTool, ErrUnknownTool, "%s is one of the tools of %s: name that instead", name, of)
			}
		}
	}
	return fault.Wrap(fault.UnsupportedTool, ErrUnknownTool, "there is no tool %q", name)
}

// operated is a provider by its name, whoever that is at the moment.
type operated struct {
	in   *Supervisor
	name string
}

func (o operated) Stop(ctx context.Context) error    { return o.do(ctx, Operator.Stop) }
func (o operated) Start(ctx context.Context) error   { return o.do(ctx, Operator.Start) }
func (o operated) Restart(ctx context.Context) error { return o.do(ctx, Operator.Restart) }

// do does something to the provider, and again to its successor when it is
// replaced in the meantime.
func (o operated) do(ctx context.Context, what func(Operator, context.Context) error) error {
	now, err := o.in.operator(o.name)
	for err == nil {
		err = what(now, ctx)
		if !errors.Is(err, peer.ErrGone) {
			return err
		}
		next, gone := o.in.operator(o.name)
		if gone != nil || next == now {
			return err
		}
		now, err = next, nil
	}
	return err
}
