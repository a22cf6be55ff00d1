package turns_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// holdTurns takes all turns of Work there are, for other callers, until what it returns is called.
func holdTurns(t *testing.T, room *turns.Room) (end func()) {
	ends := heldTurns(t, room)
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// heldTurns takes all turns, and returns what gives back each.
func heldTurns(t *testing.T, room *turns.Room) (ends []func()) {
	for i := range runtime.GOMAXPROCS(0) {
		ctx, release := room.Open(t.Context(), turns.Owner{Caller: fmt.Sprint("another ", i)})
		account := turns.AccountOf(ctx)
		if err := account.BeginWork(ctx); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() { account.EndWork(); release() })
	}
	return ends
}

// SPEC N2: who has a large answer waits for no other caller, while there are no more callers with large
// answers than half of the processors leave room for.
func TestN2NobodyWaitsForTheOnlyOtherCaller(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("it needs two processors")
	}
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		ann, release := room.Open(t.Context(), turns.Owner{Caller: "ann"})
		defer release()
		var waiting sync.WaitGroup
		for range 2 * turns.Workers() {
			waiting.Go(func() {
				if err := turns.AccountOf(ann).BeginWork(ann); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := room.Waiting(); got != turns.Workers() {
			t.Errorf("%d of one caller wait, want %d", got, turns.Workers())
		}
		bob, releaseBob := room.Open(t.Context(), turns.Owner{Caller: "bob"})
		defer releaseBob()
		did := false
		go func() { _ = turns.AccountOf(bob).Work(bob, turns.Heavy, func() { did = true }) }()
		synctest.Wait()
		if !did {
			t.Error("another caller waits for it")
		}
		for range 2 * turns.Workers() {
			turns.AccountOf(ann).EndWork()
			synctest.Wait()
		}
		waiting.Wait()
	})
}

// SPEC N2: work on large answers waits for turns, which callers have one after the other. Work on a small
// answer does not wait.
func TestN2WorkOnLargeAnswersIsDoneInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		ends := heldTurns(t, room)
		var mu sync.Mutex
		var order []string
		var done sync.WaitGroup
		for _, caller := range []string{"ann", "ann", "ann", "ann", "bob"} {
			done.Go(func() {
				ctx, release := room.Open(t.Context(), turns.Owner{Caller: caller})
				defer release()
				if err := turns.AccountOf(ctx).Work(ctx, turns.Heavy, func() {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, caller)
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("without a turn, %v work", order)
		}
		did := 0
		ctx, release := room.Open(t.Context(), turns.Owner{Caller: "ann"})
		for _, account := range []*turns.Account{nil, turns.AccountOf(ctx)} {
			if err := account.Work(ctx, turns.Heavy-1, func() { did++ }); err != nil {
				t.Error(err)
			}
		}
		if did != 2 {
			t.Errorf("small work was done %d times, want 2", did)
		}
		release()
		ends[0]() // one turn alone: with two, who has one may begin its work after the other's
		done.Wait()
		if at := slices.Index(order, "bob"); len(order) != 5 || at > 1 {
			t.Errorf("they work in the order %v", order)
		}
		for _, end := range ends[1:] {
			end()
		}
	})
}

// SPEC N2: who works in parts hands its turn on to another caller that waits, and gets the next one.
func TestN2WorkInPartsHandsItsTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		ends := heldTurns(t, room)
		ends[0]()
		var order []string // of what has the only turn
		var done sync.WaitGroup
		for _, caller := range []string{"ann", "bob"} {
			done.Go(func() {
				ctx, release := room.Open(t.Context(), turns.Owner{Caller: caller})
				defer release()
				if err := turns.AccountOf(ctx).WorkInParts(ctx, turns.Heavy, func(rest func()) {
					for range 4 {
						order = append(order, caller)
						time.Sleep(3 * time.Millisecond) // it works
						rest()
					}
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		done.Wait()
		if got := strings.Join(order, " "); got != "ann ann bob bob ann ann bob bob" {
			t.Errorf("they work in the order %s", got)
		}
		for _, end := range ends[1:] {
			end()
		}
		if room.Waiting() != 0 {
			t.Error("somebody waits")
		}
	})
}

// Work in parts whose call ends while it waits for its next turn goes on without one, and gives none back.
func TestWorkInPartsOfACallThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		ends := heldTurns(t, room)
		ends[0]()
		ctx, cancel := context.WithCancel(t.Context())
		ctx, release := room.Open(ctx, turns.Owner{Caller: "ann"})
		defer release()
		parts := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = turns.AccountOf(ctx).WorkInParts(ctx, turns.Heavy, func(rest func()) {
				for ; parts < 4; parts++ {
					time.Sleep(6 * time.Millisecond)
					rest()
				}
			})
		}()
		synctest.Wait()
		other, releaseOther := room.Open(t.Context(), turns.Owner{Caller: "bob"})
		defer releaseOther()
		if err := turns.AccountOf(other).BeginWork(other); err != nil { // at the first rest
			t.Fatal(err)
		}
		cancel()
		<-done
		if parts != 4 {
			t.Errorf("%d parts were done, want 4", parts)
		}
		turns.AccountOf(other).EndWork()
		for _, end := range ends[1:] {
			end()
		}
		holdTurns(t, room)() // each turn is there once
	})
}

// Who leaves waits no longer, and work that panics gives its turn back.
func TestWorkEndsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		end := holdTurns(t, room)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx, release := room.Open(ctx, turns.Owner{Caller: "ann"})
		defer release()
		account := turns.AccountOf(ctx)
		left := make(chan error)
		go func() { left <- account.Work(ctx, turns.Heavy, func() { t.Error("it was done") }) }()
		synctest.Wait()
		cancel(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Errorf("the error is %v", err)
		}
		end()
		for range 2 * turns.Workers() {
			func() {
				defer func() { _ = recover() }()
				_ = account.Work(t.Context(), turns.Heavy, func() { panic("of the work") })
			}()
		}
		holdTurns(t, room)() // all turns are there
	})
}

// SPEC N2: a small answer costs no memory more.
func TestN2SmallWorkAllocatesNothing(t *testing.T) {
	ctx, release := turns.NewRoom(1<<20).Open(t.Context(), turns.Owner{Caller: "ann"})
	defer release()
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		_ = turns.AccountOf(ctx).Work(ctx, 1000, func() { n++ })
		_ = turns.AccountOf(ctx).WorkInParts(ctx, 1000, func(func()) { n++ })
	}); got > 0 || n == 0 {
		t.Errorf("%v allocations", got)
	}
}
