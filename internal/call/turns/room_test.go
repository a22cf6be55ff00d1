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
				ctx, release := room.Hold(t.Context(), turns.Owner{})
				var own int64
				for range 8 {
					if err := turns.HeldBy(ctx).Need(ctx, mebi/4); err != nil {
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
			ctx, release := room.Hold(t.Context(), turns.Owner{})
			defer release()
			if err := turns.HeldBy(ctx).Need(ctx, 1<<20+turns.Little); err != nil {
				t.Fatal(err)
			}
		}
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		ctx, release := room.Hold(ctx, turns.Owner{})
		defer release()
		if _, err := io.ReadAll(turns.HeldBy(ctx).Reader(ctx, strings.NewReader(strings.Repeat("x", 1<<20)))); !errors.Is(err, late) {
			t.Errorf("the wait ends with %v", err)
		}
	})
}

func TestLittleNeedsNoRoom(t *testing.T) {
	room := turns.NewRoom(1)
	ctx, release := room.Hold(t.Context(), turns.Owner{})
	defer release()
	if err := turns.HeldBy(ctx).Need(ctx, turns.Little); err != nil || room.Free() != 1 {
		t.Errorf("%v, and %d bytes are free", err, room.Free())
	}
	var none *turns.Held
	if err := none.Need(ctx, 1<<40); err != nil {
		t.Error(err)
	}
}
