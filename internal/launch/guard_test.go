package launch

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	guards "github.com/orla-project/orla/internal/launch/guard"
)

// SPEC D3: what is started before there is a guard would outlive an Orla that is
// killed in that moment.
func TestD3NothingIsStartedBeforeTheGuard(t *testing.T) {
	l, err := NewLocal(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	guard := lateGuard{begun: make(chan struct{})}
	l.guard = guard
	spec := Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "exit 0"}, Input: []byte{}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Start(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before there is a guard: %v", err)
	}
	close(guard.begun)
	p, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Gone()
	_, _ = p.Stdout.Close(), p.Stderr.Close() // only read
}

// lateGuard is a guard that begins when the test says so.
type lateGuard struct{ begun chan struct{} }

func (g lateGuard) Await(ctx context.Context) error {
	select {
	case <-g.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (lateGuard) Dismiss() {}

func (lateGuard) Leave() *guards.State { return nil }
