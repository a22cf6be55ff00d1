package turns_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// Calls that hold a part each and need more all end, one after the other if need
// be, and what they hold together stays within the room and one call more.
func TestRoomIsNeverDeadlocked(t *testing.T) {
	const mebi = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(4 * mebi)
		var mu sync.Mutex
		var held, most int64
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				ctx, release := room.Open(t.Context(), turns.Owner{})
				var own int64
				for range 8 {
					if err := turns.AccountOf(ctx).Need(ctx, mebi/4); err != nil {
						t.Error(err)
					}
					mu.Lock()
					own += mebi / 4
					held += mebi / 4
					most = max(most, held)
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
				mu.Lock()
				held -= own
				mu.Unlock()
				release()
			})
		}
		calls.Wait()
		if limit := int64(4*mebi + 2*mebi + 20*(turns.Little+mebi/4)); most > limit {
			t.Errorf("%d bytes were held at once, want %d at most", most, limit)
		}
		if free := room.Free(); free != 4*mebi {
			t.Errorf("%d bytes are free at the end, want all", free)
		}
	})
}

func TestWaitingForRoomEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		for range 2 { // one takes all of it, and one goes beyond
			ctx, release := room.Open(t.Context(), turns.Owner{})
			defer release()
			if err := turns.AccountOf(ctx).Need(ctx, 1<<20+turns.Little); err != nil {
				t.Fatal(err)
			}
		}
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		ctx, release := room.Open(ctx, turns.Owner{})
		defer release()
		if _, err := io.ReadAll(turns.AccountOf(ctx).Reader(ctx, strings.NewReader(strings.Repeat("x", 1<<20)))); !errors.Is(err, late) {
			t.Errorf("the wait ends with %v", err)
		}
	})
}

func TestLittleNeedsNoRoom(t *testing.T) {
	room := turns.NewRoom(1)
	ctx, release := room.Open(t.Context(), turns.Owner{})
	defer release()
	if err := turns.AccountOf(ctx).Need(ctx, turns.Little); err != nil || room.Free() != 1 {
		t.Errorf("%v, and %d bytes are free", err, room.Free())
	}
	var none *turns.Account
	if err := none.Need(ctx, 1<<40); err != nil {
		t.Error(err)
	}
}

// SPEC S2: what was read beside a call and is the call's now counts until the call is over,
// within the room or beyond it.
func TestS2WhatIsPassedCountsUntilTheOtherIsOver(t *testing.T) {
	const limit = 4 << 20
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(limit)
		need := func(ctx context.Context, h *turns.Account, n int64) {
			t.Helper()
			if err := h.Need(ctx, n); err != nil {
				t.Error(err)
			}
		}
		ctx, release := room.Open(t.Context(), turns.Owner{})
		beside, releaseBeside := turns.AccountOf(ctx).Beside()
		need(ctx, beside, limit)
		beyond, releaseBeyond := turns.AccountOf(ctx).Beside()
		need(ctx, beyond, limit) // there is no room for it
		for _, h := range []*turns.Account{beside, beyond} {
			h.Pass(turns.AccountOf(ctx))
		}
		releaseBeside()
		releaseBeyond()
		if free := room.Free(); free > turns.Little {
			t.Errorf("%d bytes are free of what was passed on", free)
		}
		next, releaseNext := room.Open(t.Context(), turns.Owner{})
		done := false
		go func() { need(next, turns.AccountOf(next), limit); done = true }()
		if synctest.Wait(); done {
			t.Error("two are beyond the limit")
		}
		release()
		if synctest.Wait(); !done {
			t.Error("nothing is free when the other is over")
		}
		late, releaseLate := turns.AccountOf(next).Beside()
		releaseNext()
		need(ctx, late, limit)
		late.Pass(turns.AccountOf(next)) // which is over
		if free := room.Free(); free > turns.Little {
			t.Errorf("%d bytes are free of what could not be passed on", free)
		}
		releaseLate()
		if free := room.Free(); free != limit {
			t.Errorf("%d bytes are free at the end, want all", free)
		}
		(*turns.Account)(nil).Pass(nil) // where nothing is counted
	})
}
