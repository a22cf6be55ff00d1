package capsule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// moves remembers the states that a capsule came into, and when.
type moves struct {
	slog.Handler

	mu    sync.Mutex // guards the fields that follow
	began time.Time
	list  []string
	next  []time.Duration // until the next start, for each CRASHED
}

func (m *moves) Enabled(context.Context, slog.Level) bool { return true }

func (m *moves) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "state" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "to" {
			m.list = append(m.list, fmt.Sprintf("%s@%s", a.Value, r.Time.Sub(m.began).Round(10*time.Millisecond)))
		}
		if a.Key == "next_start_ms" {
			m.next = append(m.next, time.Duration(a.Value.Int64())*time.Millisecond)
		}
		return true
	})
	return nil
}

func (m *moves) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.list, " ")
}

// inBubble runs a test with a capsule whose processes follow a plan.
func inBubble(t *testing.T, plan func(n int) behaviour, change func(*manifest.Runtime), test func(t *testing.T, w *fakeWorld, c *Capsule, m *moves)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: plan, most: 1}
		m := &moves{began: time.Now()}
		c := walker(t, w, change)
		logsTo(c, m)
		if c.tool.Runtime.HotLoad.Mode == manifest.HotLoadReplace {
			w.most = 2
		}
		stop := served(t, c)
		test(t, w, c, m)
		stop()
		if n := w.alive.Load(); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// served serves c until what it returns is called, which waits for the end.
func served(t *testing.T, c *Capsule) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = c.Serve(ctx) // ctx ends it
	}()
	return func() {
		cancel()
		<-over
	}
}

func unchanged(*manifest.Runtime) {}

func ask(ctx context.Context, c *Capsule) error {
	_, err := c.Call(ctx, peer.Call{Tool: "walker"})
	return err
}

// told remembers what a log was told, and takes its time over "started".
type told struct {
	slog.Handler

	mu   sync.Mutex // guards list
	list []string
}

func (*told) Enabled(context.Context, slog.Level) bool { return true }

func (h *told) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "started" {
		time.Sleep(time.Millisecond) // of a bubble: whoever could say something has said it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, r.Message)
	return nil
}

// SPEC I3: the log says that a process has started before it says anything of it.
func TestStartedIsLoggedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: func(int) behaviour { return behaviour{says: "here I am"} }, most: 1}
		h := &told{}
		c := walker(t, w, unchanged)
		logsTo(c, h)
		stop := served(t, c)
		until(c, func(s *status) bool { return s.state == Ready })
		synctest.Wait()
		stop()
		started, stderr := slices.Index(h.list, "started"), slices.Index(h.list, "stderr")
		if started < 0 || stderr < started {
			t.Errorf("the log is %q", h.list)
		}
	})
}

// SPEC D9: the first crash after a second of READY is mended at once, those
// that follow after a pause that doubles, with up to a fifth on top.
func TestPausesGrow(t *testing.T) {
	plan := func(int) behaviour { return behaviour{dies: 1500 * time.Millisecond} }
	inBubble(t, plan, func(r *manifest.Runtime) { r.Restart.MaxFailures = 5 }, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		until(c, func(s *status) bool { return s.state == Stopped })
		want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}
		if len(m.next) != len(want) {
			t.Fatalf("pauses of %v, want %d", m.next, len(want))
		}
		for i, pause := range m.next {
			if pause < want[i] || pause > want[i]+want[i]/5 {
				t.Errorf("after failure %d there is a pause of %s, want %s to %s", i+1, pause, want[i], want[i]+want[i]/5)
			}
		}
		if n, life := w.started.Load(), c.Life(); n != 5 || life.Failures != 5 {
			t.Errorf("%d starts and %d failures before it was STOPPED, want 5 and 5", n, life.Failures)
		}
		err := ask(t.Context(), c)
		if fault.CodeOf(err) != fault.Crashed || !strings.Contains(err.Error(), "5 failures in a row") || !strings.Contains(err.Error(), "exited with code 1") {
			t.Errorf("a call is told %v", err)
		}
		time.Sleep(time.Hour)
		if c.Life().State != "STOPPED" {
			t.Errorf("it is %s an hour later", c.Life().State)
		}
		c.Reload("a save")
		synctest.Wait()
		if life := c.Life(); life.State != "READY" || life.Failures != 0 {
			t.Errorf("after a save it is %s with %d failures", life.State, life.Failures)
		}
	})
}

// SPEC D9: the count starts afresh after reset_after_ms of READY: not after a
// moment less.
func TestCountStartsAfresh(t *testing.T) {
	for _, test := range []struct {
		lives time.Duration
		want  int
	}{{2900 * time.Millisecond, 2}, {3100 * time.Millisecond, 1}} {
		plan := func(int) behaviour { return behaviour{dies: test.lives} }
		inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
			until(c, func(s *status) bool { return w.started.Load() >= 2 && s.state == Crashed })
			if got := c.Life().Failures; got != test.want {
				t.Errorf("two crashes after %s of READY each count as %d in a row, want %d", test.lives, got, test.want)
			}
		})
	}
}

// SPEC D9: without a limit it is tried for ever, at the longest pause.
func TestNoLimit(t *testing.T) {
	plan := func(int) behaviour { return behaviour{fails: true} }
	inBubble(t, plan, func(r *manifest.Runtime) { r.Restart.MaxFailures = 0 }, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		time.Sleep(time.Hour)
		n := w.started.Load()
		if n < 3600/6 || n > 3600/5+10 { // pauses of 5 s, and up to a fifth
			t.Errorf("%d tries in an hour with a longest pause of 5 s", n)
		}
		if state := c.Life().State; state != "CRASHED" {
			t.Errorf("it is %s", state)
		}
	})
}

// SPEC E1, E2: a change leads from READY over RELOADING to READY; one that comes
// while it starts makes it start once more, and no oftener.
func TestReloadsOnceMore(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: 100 * time.Millisecond} }
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		time.Sleep(time.Second)
		c.Reload("first")
		time.Sleep(50 * time.Millisecond) // STARTING
		for range 5 {
			c.Reload("meanwhile")
		}
		time.Sleep(time.Second)
		want := "STARTING@0s READY@100ms RELOADING@1s STARTING@1s READY@1.1s RELOADING@1.1s STARTING@1.1s READY@1.2s"
		if m.String() != want {
			t.Errorf("it went\n%s, want\n%s", m, want)
		}
		c.trigger(trigger{reason: "long ago", at: time.Now().Add(-time.Minute)})
		time.Sleep(time.Second)
		if m.String() != want {
			t.Errorf("a change that the process has already reloads it:\n%s", m)
		}
	})
}

// SPEC E4, E2: a new version that does not start leaves it CRASHED; the next
// save tries again at once.
func TestNextSaveMends(t *testing.T) {
	plan := func(n int) behaviour { return behaviour{mute: n == 2 || n == 3} }
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		time.Sleep(time.Second)
		c.Reload("a bad save")
		time.Sleep(5 * time.Second) // two starts of 2 s each, and a pause
		if life := c.Life(); life.State != "CRASHED" || !strings.Contains(life.Reason, "no orla.hello within 2s") {
			t.Fatalf("it is %s: %s", life.State, life.Reason)
		}
		c.Reload("a good save")
		synctest.Wait()
		if life := c.Life(); life.State != "READY" || life.Failures != 0 {
			t.Errorf("it is %s with %d failures", life.State, life.Failures)
		}
	})
}

// SPEC D10: a call waits for READY, but not for a restart that comes too late
// for it, and is told everything.
func TestCallsWait(t *testing.T) {
	plan := func(n int) behaviour {
		if n < 7 {
			return behaviour{fails: true}
		}
		return behaviour{hello: time.Second}
	}
	inBubble(t, plan, func(r *manifest.Runtime) { r.Restart.Max = time.Minute }, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		time.Sleep(4300 * time.Millisecond) // 0.5 + 1 + 2, and up to a fifth: the fourth start has failed
		began := time.Now()
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := ask(brief, c)
		f := fault.From(err)
		if f.Code != fault.StartFailed || !f.Retryable() || !strings.Contains(f.Reason, "CRASHED") || !strings.Contains(f.Reason, "cannot be started") ||
			!strings.Contains(f.Reason, "the next start is due in") || time.Since(began) > 0 {
			t.Errorf("after %s a call is told %v", time.Since(began), err)
		}
		until(c, func(*status) bool { return w.started.Load() >= 6 })
		if err := ask(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the next start is due in") {
			t.Errorf("with a start due long after queue_timeout a call is told %v", err)
		}
		until(c, func(*status) bool { return w.started.Load() >= 7 })
		if err := ask(t.Context(), c); err != nil {
			t.Errorf("while it starts a call is told %v", err)
		}
	})
}

// SPEC D10: the queue is bounded.
func TestQueueIsBounded(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: time.Second} }
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for range maxWaiting + 10 {
			wg.Go(func() {
				if err := ask(t.Context(), c); err != nil {
					mu.Lock()
					defer mu.Unlock()
					refused++
					if f := fault.From(err); f.Code != fault.NotReady || !strings.Contains(f.Reason, "1024 calls wait") {
						t.Errorf("refused with %v", err)
					}
				}
			})
		}
		wg.Wait()
		if refused != 10 {
			t.Errorf("%d calls were refused, want 10", refused)
		}
	})
}

// until waits for a status that ok accepts.
func until(c *Capsule, ok func(*status) bool) {
	for {
		s := c.status.Load() // once: what changes after the look closes what is waited for
		if ok(s) {
			return
		}
		<-s.changed
	}
}

// SPEC D11: a reload lets calls end within drain_ms, and no longer.
func TestDrain(t *testing.T) {
	plan := func(n int) behaviour {
		slow := 900 * time.Millisecond
		if n == 2 {
			slow = 3 * time.Second
		}
		return behaviour{slow: slow}
	}
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		for _, want := range []fault.Code{"", fault.NotReady} {
			synctest.Wait()
			answer := make(chan error, 1)
			go func() { answer <- ask(t.Context(), c) }()
			synctest.Wait()
			c.Reload("a save")
			if got := fault.CodeOf(<-answer); got != want {
				t.Errorf("the call ends with %q, want %q", got, want)
			}
			until(c, func(s *status) bool { return s.state == Ready })
		}
	})
}

// A process that dies while it may end its calls has crashed: drain_ms had not passed.
func TestADrainThatACrashCuts(t *testing.T) {
	plan := func(n int) behaviour {
		if n > 1 {
			return behaviour{}
		}
		return behaviour{slow: 1200 * time.Millisecond, dies: 2 * time.Second}
	}
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		time.Sleep(time.Second)
		answer := make(chan error, 1)
		go func() { answer <- ask(t.Context(), c) }()
		time.Sleep(500 * time.Millisecond)
		c.Reload("a save")
		err := <-answer
		if f := fault.From(err); f.Code != fault.Crashed || !strings.Contains(f.Reason, "exited with code 1") || strings.Contains(f.Reason, "drain_ms") {
			t.Errorf("the call is told %v", err)
		}
		until(c, func(s *status) bool { return s.state == Ready })
		if life := c.Life(); life.Failures != 0 {
			t.Errorf("a reload counts as %d failures", life.Failures)
		}
	})
}

// SPEC D7a: a lazy capsule is started by its first call, and stopped when it has
// been idle; the next call starts it again.
func TestLazyAndIdle(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: 100 * time.Millisecond, slow: 2 * time.Second} }
	inBubble(t, plan, func(r *manifest.Runtime) {
		r.Start, r.Declared, r.IdleTimeout = manifest.StartLazy, true, time.Second
	}, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		time.Sleep(time.Minute)
		if w.started.Load() != 0 || !c.Life().Settled {
			t.Errorf("%d processes before the first call, settled %v", w.started.Load(), c.Life().Settled)
		}
		for range 2 {
			if err := ask(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		want := "STARTING@1m0s READY@1m0.1s STOPPING@1m3.1s STOPPED@1m3.1s STARTING@1m12.1s READY@1m12.2s STOPPING@1m15.2s STOPPED@1m15.2s"
		if m.String() != want {
			t.Errorf("it went\n%s, want\n%s", m, want)
		}
	})
}

// SPEC D7a: a capsule is not idle while a call that waited for it has not come to
// it yet, which takes a moment on a busy machine.
func TestACallOnItsWayKeepsItFromIdling(t *testing.T) {
	inBubble(t, well, func(r *manifest.Runtime) { r.IdleTimeout = time.Second }, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		c.waiting.Try(turns.Owner{}, 1)
		time.Sleep(time.Minute)
		if state := c.Life().State; state != "READY" {
			t.Errorf("it is %s while a call is on its way", state)
		}
		c.waiting.Give(turns.Owner{}, 1)
		time.Sleep(time.Minute)
		if state := c.Life().State; state != "STOPPED" {
			t.Errorf("it is %s with no call for a minute", state)
		}
	})
}

// SPEC D7b: replace starts the new process beside the old one, and keeps the old
// one when the new one does not start.
func TestReplace(t *testing.T) {
	plan := func(n int) behaviour {
		return behaviour{hello: 500 * time.Millisecond, mute: n == 2, slow: 100 * time.Millisecond}
	}
	inBubble(t, plan, func(r *manifest.Runtime) { r.HotLoad.Mode = manifest.HotLoadReplace }, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		time.Sleep(time.Second)
		for i, want := range []int{1, 3} {
			c.Reload("a save")
			for range 40 { // 4 s of calls, more than a start may take
				if err := ask(t.Context(), c); err != nil {
					t.Fatalf("save %d: %v", i, err)
				}
			}
			if got := c.Life().Pid; got != want {
				t.Errorf("save %d: process %d serves, want %d", i, got, want)
			}
		}
		if want := "STARTING@0s READY@500ms"; m.String() != want {
			t.Errorf("it went %s, want %s", m, want)
		}
	})
}

// SPEC D1, I3: what is removed before it ever began makes no move. It may have
// waited for another one of its name to stop, whose last lines are still to come.
func TestWhatNeverBeganDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moves{began: time.Now()}
		c := walker(t, &fakeWorld{t: t, plan: well, most: 1}, unchanged)
		logsTo(c, m)
		waits := make(chan error, 1)
		go func() { waits <- ask(t.Context(), c) }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.Serve(over) // over's error
		if err := <-waits; !errors.Is(err, peer.ErrGone) {
			t.Errorf("a call that waited is told %v", err)
		}
		if got := m.String(); got != "" {
			t.Errorf("the log has it move to %s", got)
		}
	})
}
