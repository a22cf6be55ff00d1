package inflight_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/supervisor/inflight"
)

const most = 8192 // as the package has it

var (
	ann = turns.Owner{Caller: "ann", Session: "1"}
	bob = turns.Owner{Caller: "bob", Session: "1"}
)

// entered counts a call in.
func entered(t *testing.T, c *inflight.Calls, owner turns.Owner) (context.Context, *inflight.Call) {
	t.Helper()
	ctx, one, err := c.Enter(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, one
}

// fill counts in as many calls of an owner as there may be.
func fill(t *testing.T, c *inflight.Calls, owner turns.Owner) (all []*inflight.Call) {
	t.Helper()
	for {
		_, one, err := c.Enter(t.Context(), owner)
		if err != nil {
			if fault.CodeOf(err) != fault.RateLimited || !fault.From(err).Unsent || !fault.From(err).Retryable() {
				t.Fatalf("call %d is refused with %v, want an unsent one that can be tried again", len(all), err)
			}
			return all
		}
		all = append(all, one)
	}
}

// SPEC S2: a caller has no more than it leaves to others, and gets back what it gives up.
func TestS2ACallerLeavesRoomForOthers(t *testing.T) {
	c := inflight.New()
	of := fill(t, c, ann)
	if len(of) < most/8 || len(of) > most/2 {
		t.Errorf("one caller has %d of %d", len(of), most)
	}
	of[0].Leave()
	_, of[0] = entered(t, c, ann)
	if _, _, err := c.Enter(t.Context(), ann); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("a call beyond the share: %v", err)
	}
	if _, _, err := c.Waiting(t.Context(), ann); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("a request that would wait beyond the share: %v", err)
	}
	others := fill(t, c, bob)
	if len(others) < most/16 || c.InFlight() != len(of)+len(others) {
		t.Errorf("another has %d; %d are in flight", len(others), c.InFlight())
	}
}

// SPEC H4: calls are refused as soon as Orla stops, and what is refused takes no place.
func TestH4RefusedCallsTakeNoPlace(t *testing.T) {
	c := inflight.New()
	_, one := entered(t, c, ann)
	select {
	case <-c.Stopping():
		t.Error("it is stopping from the start")
	default:
	}
	for range 2 {
		if n := c.Refuse(); n != 1 {
			t.Errorf("%d are in flight, want 1", n)
		}
	}
	<-c.Stopping()
	for range most { // each would take a place
		if _, _, err := c.Enter(t.Context(), bob); fault.CodeOf(err) != fault.NotReady {
			t.Fatalf("a call while Orla stops: %v", err)
		}
		if _, _, err := c.Waiting(t.Context(), bob); fault.CodeOf(err) != fault.NotReady {
			t.Fatalf("a request that would wait while Orla stops: %v", err)
		}
	}
	one.Leave()
	c.Drain(t.Context()) // returns, as nothing is in flight
}

// SPEC H4: with nothing in flight there is nothing to wait for.
func TestH4DrainOfNothingIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { inflight.New().Drain(t.Context()) }) // fails if it waits
}

// SPEC H4: calls in flight may end within the grace, and are cancelled after it. Drain waits for them in either case.
func TestH4DrainWaitsForCallsAndCancelsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inflight.New()
		began := time.Now()
		_, quick := entered(t, c, ann)
		ctx, endless := entered(t, c, bob)
		time.AfterFunc(3*time.Second, quick.Leave)
		context.AfterFunc(ctx, func() {
			if since := time.Since(began); since != 10*time.Second || fault.CodeOf(context.Cause(ctx)) != fault.NotReady {
				t.Errorf("it was ended after %s with %v, want the whole grace and not_ready", since, context.Cause(ctx))
			}
			time.Sleep(time.Second) // in a bubble
			endless.Leave()
		})
		grace, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c.Drain(grace)
		if took, n := time.Since(began), c.InFlight(); took != 11*time.Second || n != 0 {
			t.Errorf("drained after %s with %d calls in flight", took, n)
		}
	})
}

// SPEC N2, H4: a request that waits counts as a call in flight. It ends with its caller's access, and as soon as Orla stops.
func TestN2RequestsThatWaitAreCounted(t *testing.T) {
	c := inflight.New()
	waiting := func(owner turns.Owner) (context.Context, func()) {
		ctx, leave, err := c.Waiting(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		return ctx, leave
	}
	anns, annLeaves := waiting(ann)
	bobs, bobLeaves := waiting(bob)
	begun, one := entered(t, c, bob)
	c.End(func(owner turns.Owner) bool { return owner == ann })
	if cause := context.Cause(anns); !errors.Is(cause, context.Canceled) || bobs.Err() != nil || begun.Err() != nil {
		t.Errorf("that of a caller without access ends with %v, that of another with %v and %v", cause, bobs.Err(), begun.Err())
	}
	if n := c.Refuse(); n != 3 {
		t.Errorf("%d are in flight", n)
	}
	if cause := context.Cause(bobs); fault.CodeOf(cause) != fault.NotReady || begun.Err() != nil {
		t.Errorf("when Orla stops, what waits ends with %v, and a call with %v", cause, begun.Err())
	}
	for _, leave := range []func(){annLeaves, bobLeaves, one.Leave} {
		leave()
	}
	c.Drain(t.Context())
}

// SPEC-TOOLS 8.7: a call that waits for an approval takes no place, needs one to go on, and ends as soon as Orla stops.
func TestT87AParkedCallTakesNoPlace(t *testing.T) {
	c := inflight.New()
	all := fill(t, c, ann)
	parked := all[0]
	if err := parked.Park(); err != nil {
		t.Fatal(err)
	}
	_, next := entered(t, c, ann) // has its place
	if c.Parked() != 1 || c.InFlight() != len(all)+1 {
		t.Errorf("%d are parked, %d in flight", c.Parked(), c.InFlight())
	}
	if err := parked.Resume(); fault.CodeOf(err) != fault.RateLimited || c.Parked() != 1 {
		t.Errorf("it goes on without a place: %v", err)
	}
	next.Leave()
	if err := parked.Resume(); err != nil || c.Parked() != 0 {
		t.Errorf("it does not go on: %v; %d are parked", err, c.Parked())
	}
	if _, _, err := c.Enter(t.Context(), ann); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("it has not taken its place back: %v", err)
	}

	if err := parked.Park(); err != nil {
		t.Fatal(err)
	}
	ctx, one := entered(t, c, ann)
	if err := one.Park(); err != nil {
		t.Fatal(err)
	}
	_, running := entered(t, c, ann)
	c.Refuse()
	if fault.CodeOf(context.Cause(ctx)) != fault.NotReady {
		t.Errorf("Orla stops, and it ends with %v", context.Cause(ctx))
	}
	_, _, err := c.Enter(t.Context(), ann)
	for what, err := range map[string]error{"goes on": parked.Resume(), "begins": err} {
		if fault.CodeOf(err) != fault.NotReady {
			t.Errorf("Orla stops, there is no place, and a call %s: %v", what, err)
		}
	}
	all[1].Leave() // so that there is a place to take back
	for what, err := range map[string]error{"goes on": parked.Resume(), "is parked": running.Park()} {
		if fault.CodeOf(err) != fault.NotReady {
			t.Errorf("Orla stops, and a call %s: %v", what, err)
		}
	}
	for _, call := range append(all[2:], parked, one, running) {
		call.Leave()
	}
	c.Drain(t.Context())
}

// SPEC Q1: an upgrade looks for how long calls have taken, and does not count those that wait for an approval.
func TestQ1HowLongCallsHaveTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inflight.New()
		if c.Longest() != 0 || c.Older(0) != 0 {
			t.Errorf("without a call, %s and %d", c.Longest(), c.Older(0))
		}
		_, oldest := entered(t, c, ann)
		time.Sleep(2 * time.Second) // in a bubble
		_, older := entered(t, c, bob)
		time.Sleep(3 * time.Second) // in a bubble
		_, newest := entered(t, c, ann)
		if c.Longest() != 5*time.Second || c.Older(3*time.Second) != 2 || c.Older(4*time.Second) != 1 || c.Older(6*time.Second) != 0 {
			t.Errorf("the longest takes %s; %d, %d and %d are older", c.Longest(), c.Older(3*time.Second), c.Older(4*time.Second), c.Older(6*time.Second))
		}
		if err := oldest.Park(); err != nil {
			t.Fatal(err)
		}
		if c.Longest() != 3*time.Second || c.Older(time.Second) != 1 {
			t.Errorf("without the one that is parked, the longest takes %s, and %d are older", c.Longest(), c.Older(time.Second))
		}
		for _, one := range []*inflight.Call{oldest, older, newest} {
			one.Leave()
		}
		if c.Longest() != 0 {
			t.Errorf("after all of them, %s", c.Longest())
		}
	})
}

// SPEC H4, S2: whatever happens at the same time, Drain ends, and each place is given back.
func TestH4CallsComeAndGoWhileOrlaStops(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			c := inflight.New()
			var clients sync.WaitGroup
			for n := range uint64(16) {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(seed, n))
					for {
						ctx, one, err := c.Enter(t.Context(), turns.Owner{Caller: string(rune('a' + n%3)), Session: "1"})
						if fault.CodeOf(err) == fault.NotReady {
							return
						}
						if err != nil {
							t.Errorf("client %d: %v", n, err)
							return
						}
						if r.IntN(2) == 0 && one.Park() == nil && r.IntN(2) == 0 {
							_ = one.Resume() // fails when Orla stops
						}
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(r.IntN(50)) * time.Millisecond):
						}
						one.Leave()
					}
				})
			}
			time.Sleep(time.Duration(seed) * 7 * time.Millisecond) // in a bubble
			grace, cancel := context.WithTimeout(t.Context(), time.Duration(seed)*time.Millisecond)
			defer cancel()
			c.Drain(grace)
			if c.InFlight() != 0 || c.Parked() != 0 {
				t.Errorf("seed %d: %d are in flight, %d parked", seed, c.InFlight(), c.Parked())
			}
			clients.Wait()
		})
	}
}
