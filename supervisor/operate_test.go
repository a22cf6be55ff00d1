package supervisor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// operable is a peer that can be operated. It waits before it answers, and is
// gone by then if its Serve has ended.
type operable struct {
	*fakePeer
	takes time.Duration
	asked []string
	over  chan struct{}
}

func newOperable(name string) *operable {
	return &operable{fakePeer: newFakePeer(name, peer.Offers{Known: true, Tools: listed(name+"__a", name+"__b")}), over: make(chan struct{})}
}

func (o *operable) Serve(ctx context.Context) error {
	defer close(o.over)
	return o.fakePeer.Serve(ctx)
}

func (o *operable) do(what string) error {
	o.asked = append(o.asked, what)
	select {
	case <-o.over:
		return fault.Wrap(fault.NotReady, peer.ErrGone, "it is gone")
	case <-time.After(o.takes): // in a bubble
		return nil
	}
}

func (o *operable) Stop(context.Context) error    { return o.do("stop") }
func (o *operable) Start(context.Context) error   { return o.do("start") }
func (o *operable) Restart(context.Context) error { return o.do("restart") }

// operables is a supervisor of simple tools and of peers, made anew for each
// manifest; made has them in turn.
func operables(t *testing.T) (s *supervisor.Supervisor, made *[]*operable) {
	made = &[]*operable{}
	s = supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Simple: func(t manifest.Tool) (supervisor.Provider, error) { return &fake{tool: t}, nil },
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
				o := newOperable(t.Name)
				*made = append(*made, o)
				return o, nil
			},
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s, made
}

// SPEC J1: what lives can be operated, and nothing else.
func TestJ1OperatesWhatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, made := operables(t)
		s.Apply([]manifest.Tool{tool("simple"), capsuleTool("cap", "")})
		o, err := s.Operate("cap")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(o.Stop(t.Context()), o.Start(t.Context()), o.Restart(t.Context())); err != nil {
			t.Error(err)
		}
		if got := (*made)[0].asked; len(got) != 3 || got[0] != "stop" || got[1] != "start" || got[2] != "restart" {
			t.Errorf("it was asked to %v", got)
		}
		for name, want := range map[string]string{
			"simple": "unsupported_tool: simple is a simple tool: each call runs a process of its own, so that there is nothing to stop, start or restart",
			"none":   `unsupported_tool: there is no tool "none": unknown tool`,
			"cap__a": "unsupported_tool: cap__a is one of the tools of cap: name that instead: unknown tool",
		} {
			if _, err := s.Operate(name); err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", name, err, want)
			} else if errors.Is(err, supervisor.ErrUnknownTool) == (name == "simple") {
				t.Errorf("%s: unknown or not is told wrongly", name)
			}
		}
	})
}

// What is done to a capsule whose manifest changes meanwhile is done to its
// successor; when there is none, whoever waits is told so.
func TestJ1OperatesTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, made := operables(t)
		s.Apply([]manifest.Tool{capsuleTool("cap", "one")})
		o, err := s.Operate("cap")
		if err != nil {
			t.Fatal(err)
		}
		(*made)[0].takes = time.Hour
		done := make(chan error, 1)
		go func() { done <- o.Stop(t.Context()) }()
		synctest.Wait()
		s.Apply([]manifest.Tool{capsuleTool("cap", "two")})
		if err := <-done; err != nil || len((*made)[1].asked) != 1 {
			t.Errorf("error %v, the successor was asked to %v", err, (*made)[1].asked)
		}

		(*made)[1].takes = time.Hour
		go func() { done <- o.Restart(t.Context()) }()
		synctest.Wait()
		s.Apply(nil)
		if err := <-done; !errors.Is(err, peer.ErrGone) {
			t.Errorf("error %v of one that was removed", err)
		}
		if err := o.Start(t.Context()); !errors.Is(err, supervisor.ErrUnknownTool) {
			t.Errorf("error %v of one that is not there", err)
		}
	})
}
