package capsule

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// ok is for what must be done within a moment.
func ok(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Error(err)
	}
}

// faulty wants an error that holds words.
func faulty(t *testing.T, err error, code fault.Code, words ...string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("error %v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// down wants a capsule that was stopped by an operator.
func down(t *testing.T, c *Capsule, w *fakeWorld) {
	t.Helper()
	life := c.Life()
	if life.State != "STOPPED" || !life.Held || life.Pid != 0 || !life.Started.IsZero() || life.Reason != "stopped by an operator" || !life.Settled || !life.Next.IsZero() {
		t.Errorf("it is %+v", life)
	}
	if n := w.alive.Load(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

func broken(int) behaviour { return behaviour{fails: true} }
func mute(int) behaviour   { return behaviour{mute: true} }
func well(int) behaviour   { return behaviour{} }

// SPEC D9, D10, J1: a capsule that was stopped by an operator stays so until it is
// started by an operator, and tells those who call it.
func TestStopByHand(t *testing.T) {
	inBubble(t, well, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		ok(t, c.Start) // of one that is starting
		began := c.Life().Started
		time.Sleep(time.Second)
		ok(t, c.Start) // of one that is READY: nothing changes
		if life := c.Life(); life.Pid != 1 || !life.Started.Equal(began) || life.Held {
			t.Errorf("it is %+v", life)
		}
		ok(t, c.Stop)
		down(t, c, w)
		ok(t, c.Stop)
		c.Reload("a file changed")
		time.Sleep(time.Hour)
		err := ask(t.Context(), c)
		faulty(t, err, fault.NotReady, "walker is STOPPED", "by an operator", `"orla start walker"`)
		if fault.From(err).Retryable() {
			t.Error("a call is told to try again")
		}
		down(t, c, w)
		ok(t, c.Start)
		if err := ask(t.Context(), c); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if life := c.Life(); life.Pid != 2 || life.Held || life.Failures != 0 {
			t.Errorf("after the start it is %+v", life)
		}
		if got, want := m.String(), "STARTING@0s READY@0s STOPPING@1s STOPPED@1s STARTING@1h0m1s READY@1h0m1s"; got != want {
			t.Errorf("it went %s, want %s", got, want)
		}
	})
}

// SPEC D11: a stop by an operator lets calls end within drain_ms, and takes no others.
func TestStopByHandDrains(t *testing.T) {
	inBubble(t, func(int) behaviour { return behaviour{slow: 700 * time.Millisecond} }, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		ok(t, c.Start)
		fast, late := make(chan error, 1), make(chan error, 1)
		go func() { fast <- ask(t.Context(), c) }()
		synctest.Wait()
		go func() { late <- ask(t.Context(), c) }() // 1.4 s, and drain_ms is 1 s
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(t.Context()) }()
		synctest.Wait()
		faulty(t, ask(t.Context(), c), fault.NotReady, "STOPPING", "by an operator")
		if err := <-fast; err != nil {
			t.Error(err)
		}
		faulty(t, <-late, fault.NotReady, "stopped by an operator during the call")
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		down(t, c, w)
	})
}

// A stop by an operator takes effect at once in every state.
func TestStopByHandInAnyState(t *testing.T) {
	for name, test := range map[string]struct {
		plan   func(int) behaviour
		change func(*manifest.Runtime)
		after  time.Duration
		state  string
	}{
		"STARTING":     {mute, func(rt *manifest.Runtime) { rt.StartupTimeout = time.Hour }, time.Second, "STARTING"},
		"CRASHED":      {broken, func(rt *manifest.Runtime) { rt.Restart.Initial, rt.Restart.Max = time.Hour, time.Hour }, time.Second, "CRASHED"},
		"at its limit": {broken, func(rt *manifest.Runtime) { rt.Restart.MaxFailures = 1 }, time.Second, "STOPPED"},
		"lazy":         {well, func(rt *manifest.Runtime) { rt.Start, rt.Declared = manifest.StartLazy, true }, time.Second, "CREATED"},
		"idle":         {well, func(rt *manifest.Runtime) { rt.IdleTimeout = time.Second }, time.Minute, "STOPPED"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, test.plan, test.change, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
				time.Sleep(test.after)
				if s := c.Life().State; s != test.state {
					t.Fatalf("it is %s, want %s", s, test.state)
				}
				began := time.Now()
				ok(t, c.Stop)
				if took := time.Since(began); took != 0 {
					t.Errorf("the stop took %s", took)
				}
				down(t, c, w)
				started := w.started.Load()
				faulty(t, ask(t.Context(), c), fault.NotReady, "by an operator")
				time.Sleep(10 * time.Hour)
				if n := w.started.Load(); n != started {
					t.Errorf("%d processes were started", n-started)
				}
			})
		})
	}
}

// A stop by an operator that comes at the last moment before a start is in time.
func TestStopByHandJustBeforeAStart(t *testing.T) {
	w := &fakeWorld{t: t, plan: well, most: 1}
	c := walker(t, w, unchanged)
	c.give("stopped by an operator", true, true)
	if end := c.liveUntilHeld(t.Context()); end != (ending{}) || w.started.Load() != 0 {
		t.Errorf("it lived, and ended by %+v", end)
	}
}

// SPEC D9: a start by an operator skips the backoff, and the count starts afresh.
func TestStartByHand(t *testing.T) {
	for name, test := range map[string]struct {
		plan   func(int) behaviour
		change func(*manifest.Runtime)
		after  time.Duration
	}{
		"CRASHED": {func(n int) behaviour { return behaviour{fails: n < 3} }, func(rt *manifest.Runtime) {
			rt.Restart.Initial, rt.Restart.Max = time.Second, time.Hour
		}, 2 * time.Second},
		"at its limit": {func(n int) behaviour { return behaviour{fails: n < 2} }, func(rt *manifest.Runtime) { rt.Restart.MaxFailures = 1 }, time.Second},
		"lazy":         {well, func(rt *manifest.Runtime) { rt.Start, rt.Declared = manifest.StartLazy, true }, time.Second},
		"idle":         {well, func(rt *manifest.Runtime) { rt.IdleTimeout = time.Second }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, test.plan, test.change, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
				time.Sleep(test.after)
				if s := c.Life().State; s == "READY" {
					t.Fatal("it is READY already")
				}
				began := time.Now()
				ok(t, c.Start)
				if life := c.Life(); life.State != "READY" || life.Failures != 0 || time.Since(began) != 0 {
					t.Errorf("after %s it is %+v", time.Since(began), life)
				}
			})
		})
	}
}

// A start by an operator of one that is READY forgives nothing that comes later.
func TestStartByHandOfOneThatIsReady(t *testing.T) {
	patient := func(rt *manifest.Runtime) { rt.Restart.Initial, rt.Restart.Max = time.Hour, time.Hour }
	inBubble(t, well, patient, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		synctest.Wait()
		ok(t, c.Start)
		w.mu.Lock()
		last := w.last
		w.mu.Unlock()
		last.crash()
		time.Sleep(time.Minute)
		if life := c.Life(); life.State != "CRASHED" || life.Failures != 1 {
			t.Errorf("it is %+v", life)
		}
	})
}

// A start by an operator that fails says why, and when the next one is due.
func TestStartByHandFails(t *testing.T) {
	inBubble(t, broken, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		ok(t, c.Stop)
		faulty(t, c.Start(t.Context()), fault.StartFailed, "walker is CRASHED", "it cannot be started", "next start is due in")
		if life := c.Life(); life.Failures != 1 || life.Held {
			t.Errorf("it is %+v", life)
		}
		faulty(t, c.Restart(t.Context()), fault.StartFailed, "walker is CRASHED")
		if life := c.Life(); life.Failures != 1 {
			t.Errorf("it is %+v", life)
		}
	})
	inBubble(t, mute, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		ok(t, c.Stop)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		faulty(t, c.Start(ctx), fault.Timeout, "walker is still STARTING", "started by an operator")
		faulty(t, c.Start(t.Context()), fault.StartFailed, "no orla.hello within 2s")
	})
}

// SPEC D9: a restart by an operator makes a new process. It does not count as a failure.
func TestRestartByHand(t *testing.T) {
	inBubble(t, func(int) behaviour { return behaviour{hello: time.Second} }, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, m *moves) {
		ok(t, c.Restart) // of one that was not started yet, or is starting
		pid := c.Life().Pid
		for range 3 {
			ok(t, c.Restart)
			life := c.Life()
			if life.State != "READY" || life.Pid <= pid || life.Failures != 0 || time.Since(life.Started) != time.Second {
				t.Errorf("it is %+v", life)
			}
			pid = life.Pid
		}
		ok(t, c.Stop)
		ok(t, c.Restart)
		if life := c.Life(); life.State != "READY" || life.Held {
			t.Errorf("it is %+v", life)
		}
		if !strings.Contains(m.String(), "READY@2s RELOADING@2s STARTING@2s READY@3s") {
			t.Errorf("it went %s", m)
		}
	})
}

// A restart by an operator that comes during a start has a process of its own.
func TestRestartByHandDuringAStart(t *testing.T) {
	inBubble(t, func(int) behaviour { return behaviour{hello: time.Second} }, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		time.Sleep(500 * time.Millisecond)
		both := make(chan error, 2)
		for range 2 {
			go func() { both <- c.Restart(t.Context()) }()
		}
		for range 2 {
			if err := <-both; err != nil {
				t.Error(err)
			}
		}
		if life := c.Life(); life.State != "READY" || life.Pid != 2 || w.started.Load() != 2 {
			t.Errorf("it is %+v after %d starts", life, w.started.Load())
		}
	})
}

// SPEC D7b: in mode replace a restart by an operator starts the new process beside the
// old one, which serves on when the new one does not start.
func TestRestartByHandReplaces(t *testing.T) {
	plan := func(n int) behaviour { return behaviour{hello: time.Second, mute: n == 3, fails: n == 4} }
	inBubble(t, plan, replaces, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		synctest.Wait()
		w.most = 3 // one that was replaced takes a moment to end
		ok(t, c.Start)
		ok(t, c.Restart)
		faulty(t, c.Restart(t.Context()), fault.StartFailed, "the old one serves on", "no orla.hello")
		faulty(t, c.Restart(t.Context()), fault.StartFailed, "the old one serves on", "cannot be started")
		if life := c.Life(); life.State != "READY" || life.Pid != 2 {
			t.Errorf("it is %+v", life)
		}
		for n, meanwhile := range []func(context.Context) error{c.Start, c.Restart} {
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- c.Restart(t.Context()) }()
			time.Sleep(500 * time.Millisecond)
			go func() { second <- meanwhile(t.Context()) }()
			if err := errors.Join(<-first, <-second); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second) // and there is no other one
			if life := c.Life(); life.State != "READY" || life.Pid != 5+2*n {
				t.Errorf("it is %+v", life)
			}
		}
		if got, want := m.String(), "STARTING@0s READY@1s"; got != want {
			t.Errorf("it went %s, want %s", got, want)
		}
	})
}

func replaces(rt *manifest.Runtime) { rt.HotLoad.Mode = manifest.HotLoadReplace }

// When the old process dies while a restart by an operator brings its successor up, the
// restart is made at once all the same.
func TestRestartByHandOfOneThatDies(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: time.Second} }
	patient := func(rt *manifest.Runtime) {
		replaces(rt)
		rt.Restart.Initial, rt.Restart.Max = time.Hour, time.Hour
	}
	inBubble(t, plan, patient, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		ok(t, c.Start)
		w.mu.Lock()
		old := w.last
		w.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- c.Restart(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		old.crash()
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// What is asked for by an operator at once ends in what was asked for last, and each
// who asked is answered.
func TestOrdersByHandOvertakeEachOther(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: time.Second, stubborn: 500 * time.Millisecond} }
	inBubble(t, plan, unchanged, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		restart, stop, start := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		ok(t, c.Start)
		go func() { restart <- c.Restart(t.Context()) }()
		time.Sleep(time.Second) // it is starting
		go func() { stop <- c.Stop(t.Context()) }()
		synctest.Wait()
		faulty(t, <-restart, fault.NotReady, "by an operator")
		if err := <-stop; err != nil {
			t.Error(err)
		}
		down(t, c, w)

		ok(t, c.Start)
		pid := c.Life().Pid
		go func() { stop <- c.Stop(t.Context()) }()
		time.Sleep(100 * time.Millisecond) // it is being stopped
		go func() { start <- c.Start(t.Context()) }()
		if err := <-start; err != nil {
			t.Error(err)
		}
		if err := <-stop; err != nil { // or it was STOPPED for a moment
			faulty(t, err, fault.NotReady, "started again by an operator")
		}
		if life := c.Life(); life.State != "READY" || life.Pid != pid+1 || life.Held {
			t.Errorf("it is %+v", life)
		}
	})
}

// Who waits for a capsule that is not served any more is let go.
func TestOrdersByHandOfOneThatIsGone(t *testing.T) {
	for name, plan := range map[string]func(int) behaviour{
		"starts": mute,
		"stops":  func(int) behaviour { return behaviour{stubborn: time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &fakeWorld{t: t, plan: plan, most: 1}
				c := walker(t, w, unchanged)
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan struct{})
				go func() {
					defer close(served)
					_ = c.Serve(ctx)
				}()
				time.Sleep(time.Second)
				errs := make(chan error, 3)
				if name == "starts" {
					go func() { errs <- c.Start(t.Context()) }()
					go func() { errs <- c.Restart(t.Context()) }()
				} else {
					go func() { errs <- c.Stop(t.Context()) }()
					go func() { errs <- c.Restart(t.Context()) }()
				}
				synctest.Wait()
				cancel()
				for range 2 {
					if err := <-errs; !errors.Is(err, peer.ErrGone) {
						t.Errorf("error %v", err)
					}
				}
				<-served
				for _, op := range []func(context.Context) error{c.Stop, c.Start, c.Restart} {
					if err := op(t.Context()); !errors.Is(err, peer.ErrGone) {
						t.Errorf("error %v of one that is gone", err)
					}
				}
			})
		})
	}
}

// A capsule whose manifest changes while the one before it still stops never
// begins, and who waits for it is let go as well.
func TestOrdersByHandOfOneThatNeverBegins(t *testing.T) {
	for name, op := range map[string]func(*Capsule, context.Context) error{
		"stop": (*Capsule).Stop, "start": (*Capsule).Start, "restart": (*Capsule).Restart,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := walker(t, &fakeWorld{t: t}, unchanged)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				early := make(chan error, 1)
				go func() { early <- op(c, ctx) }()
				synctest.Wait()
				over, end := context.WithCancel(ctx)
				end()
				_ = c.Serve(over)
				for _, err := range []error{<-early, op(c, ctx)} {
					if !errors.Is(err, peer.ErrGone) {
						t.Errorf("error %v", err)
					}
				}
			})
		})
	}
}

// A service that panics and is served again stays as it was left by an operator.
func TestHeldIsServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: well, most: 1}
		c := walker(t, w, unchanged)
		for n := range 2 {
			stop := served(t, c)
			synctest.Wait()
			if n == 0 {
				ok(t, c.Stop)
			}
			down(t, c, w)
			faulty(t, ask(t.Context(), c), fault.NotReady, "by an operator")
			stop()
		}
		if n := w.started.Load(); n > 1 {
			t.Errorf("%d processes were started", n)
		}
	})
}

// SPEC J1, D7b: a start that comes while a restart is under way waits for that,
// and is done when the old process serves on, whose restart has failed.
func TestStartDuringARestartThatFails(t *testing.T) {
	plan := func(n int) behaviour { return behaviour{mute: n == 2} }
	inBubble(t, plan, func(r *manifest.Runtime) { r.HotLoad.Mode = manifest.HotLoadReplace }, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		restarted := make(chan error, 1)
		go func() { restarted <- c.Restart(ctx) }()
		synctest.Wait()
		if err := c.Start(ctx); err != nil {
			t.Errorf("Start gave %v", err)
		}
		if err := <-restarted; fault.CodeOf(err) != fault.StartFailed {
			t.Errorf("Restart gave %v; want start_failed", err)
		}
		if life := c.Life(); life.State != "READY" || life.Pid != 1 {
			t.Errorf("it is %+v", life)
		}
	})
}
