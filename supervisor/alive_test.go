package supervisor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
	"github.com/orla-project/orla/supervisor/services"
)

// alive asks with little patience: nothing waits for it but what is stuck.
func alive(t *testing.T, w *world, patience time.Duration, trees ...*suture.Supervisor) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return w.Alive(ctx, trees...)
}

// stuckIn wants Alive to name what does not answer, and to answer once it does.
func stuckIn(t *testing.T, w *world, release func(), want string, trees ...*suture.Supervisor) {
	t.Helper()
	if err := alive(t, w, 50*time.Millisecond, trees...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Alive() = %v; want that %s does not answer", err, want)
	}
	release()
	if err := alive(t, w, time.Minute, trees...); err != nil {
		t.Errorf("afterwards, Alive() = %v", err)
	}
}

// TestK1AliveBeforeAndAfter: a tree that does not run is not stuck.
func TestK1AliveBeforeAndAfter(t *testing.T) {
	w := newWorld()
	if err := alive(t, w, time.Minute); err != nil {
		t.Errorf("before Serve: %v", err)
	}
	end := serving(t, w.Supervisor)
	w.Apply([]manifest.Tool{tool("one")})
	if err := alive(t, w, time.Minute); err != nil {
		t.Errorf("during Serve: %v", err)
	}
	end()
	if err := alive(t, w, time.Minute); err != nil {
		t.Errorf("after Serve: %v", err)
	}
}

// TestK1AliveMissesAStuckApply: an Apply that never ends is found out.
func TestK1AliveMissesAStuckApply(t *testing.T) {
	building, release, applied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := newWorld()
	w.with = func(*fake) {
		close(building)
		<-release
	}
	go func() {
		defer close(applied)
		w.Apply([]manifest.Tool{tool("one")})
	}()
	<-building
	stuckIn(t, w, func() { close(release) }, "the lock of the tools")
	<-applied
}

// TestK1AliveMissesAStuckCall: the lock of the calls that is never given back is found out.
func TestK1AliveMissesAStuckCall(t *testing.T) {
	w := newWorld()
	stuckIn(t, w, w.HoldCalls(), "the lock of the calls")
}

// blocking is a log that nobody reads from the first panic on.
type blocking struct {
	slog.Handler
	stuck   chan struct{} // closed when a line waits
	release chan struct{}
}

func (b blocking) Enabled(context.Context, slog.Level) bool { return true }

func (b blocking) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "a service panicked" {
		close(b.stuck)
		<-b.release
	}
	return nil
}

// TestK1AliveMissesAStuckTree: a tree whose goroutine does not answer is found
// out, the supervisor's own and any that is given.
func TestK1AliveMissesAStuckTree(t *testing.T) {
	panicking := func(calls *int) func(context.Context) error {
		return func(ctx context.Context) error {
			if *calls++; *calls == 1 {
				panic("for the test")
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	newLog := func() blocking {
		return blocking{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
	}
	t.Run("back", func(t *testing.T) {
		log, calls := newLog(), 0
		w := newWorld(func(o *supervisor.Options) { o.Log = slog.New(log) })
		w.with = func(f *fake) { f.serve = panicking(&calls) }
		defer serving(t, w.Supervisor)()
		w.Apply([]manifest.Tool{tool("bad")})
		<-log.stuck
		stuckIn(t, w, func() { close(log.release) }, "the supervisor back")
	})
	t.Run("front", func(t *testing.T) {
		log, calls := newLog(), 0
		w := newWorld()
		defer serving(t, w.Supervisor)()
		front := suture.New("front", services.Spec(slog.New(log)))
		front.Add(&fake{serve: panicking(&calls)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		// ServeBackground would wait for an answer of the tree, which may be stuck by then.
		go func() { ended <- front.Serve(ctx) }()
		<-log.stuck
		stuckIn(t, w, func() { close(log.release) }, "the supervisor front", front)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the front ended with %v", err)
		}
	})
}
