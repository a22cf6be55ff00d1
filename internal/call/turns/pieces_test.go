package turns_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// N2: who reads much reads it piece by piece, each in turn, and what is done with a piece belongs to its turn.
func TestN2PiecesAreReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment, size = 2 * time.Millisecond, 1 << 20
		q := turns.NewAging(turns.NoLimit, 1, moment)
		ann := turns.Owner{Caller: "ann", Session: "1"}
		for _, other := range []turns.Owner{ann, {Caller: "bob"}} { // ann has what she may have beside bob
			place, err := q.TakeLonger(t.Context(), other, 10)
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
		}
		ctx := q.In(t.Context(), ann)
		began := time.Now()
		in, end := turns.Pieces(ctx, strings.NewReader(strings.Repeat("x", size)))
		n, err := in.Read(make([]byte, size))
		if err != nil || n > size/4 || time.Since(began) < 10*moment {
			t.Fatalf("the first piece has %d bytes, and comes after %v: %v", n, time.Since(began), err)
		}
		busy := q.In(t.Context(), turns.Owner{Caller: "ann", Session: "2"})
		begins := func() bool {
			ctx, cancel := context.WithTimeout(busy, moment/2)
			defer cancel()
			end, err := turns.Begin(ctx, 1)
			if err == nil {
				end()
			}
			return err == nil
		}
		if begins() {
			t.Error("another session of the caller works beside the first piece")
		}
		began = time.Now()
		if more, err := io.Copy(io.Discard, in); err != nil || int(more)+n != size || time.Since(began) != moment/2 { // as long as the first piece took
			t.Errorf("%d bytes follow after %v: %v", more, time.Since(began), err)
		}
		end()
		if !begins() {
			t.Error("the last turn does not end")
		}
		left, leave := context.WithCancelCause(ctx)
		leave(io.ErrClosedPipe)
		in, end = turns.Pieces(left, strings.NewReader("x"))
		defer end()
		place, err := q.TakeLonger(t.Context(), ann, 10)
		if err != nil {
			t.Fatal(err)
		}
		defer place.Give()
		if n, err := in.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("who has left gets %d bytes: %v", n, err)
		}
	})
}

// N2: who has worked rests for as long while there are others, but not when its turn was over anyway.
func TestN2WorkTakesHalfOfTheTime(t *testing.T) {
	for _, c := range []struct{ works, rests time.Duration }{{time.Millisecond, time.Millisecond}, {time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			q := turns.NewAging(turns.NoLimit, 1, 2*time.Millisecond)
			place, err := q.TakeBriefly(t.Context(), turns.Owner{Caller: "bob"})
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
			ctx := q.In(t.Context(), turns.Owner{Caller: "ann"})
			end, err := turns.Begin(ctx, 10)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.works) // in a bubble
			end()
			began := time.Now()
			if end, err = turns.Begin(ctx, 10); err != nil {
				t.Fatal(err)
			}
			end()
			if rested := time.Since(began); rested != c.rests {
				t.Errorf("after work of %v it rests %v", c.works, rested)
			}
		})
	}
}

// N2: a stream whose work is done does not count as active, and its place is given back once.
func TestN2WhoOnlyWaitsIsNotActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment = 2 * time.Millisecond
		q := turns.NewAging(turns.NoLimit, 1, moment)
		end, err := turns.Begin(q.In(t.Context(), turns.Owner{Caller: "ann"}), 5)
		if err != nil {
			t.Fatal(err)
		}
		bob := turns.Owner{Caller: "bob"}
		took := func() time.Duration {
			began := time.Now()
			for range 2 {
				place, err := q.TakeBriefly(t.Context(), bob)
				if err != nil {
					t.Fatal(err)
				}
				defer place.Give()
			}
			return time.Since(began)
		}
		if waited := took(); waited != moment {
			t.Errorf("beside an answer that is made, bob waits %v", waited)
		}
		time.Sleep(time.Minute)
		if waited := took(); waited != 0 {
			t.Errorf("beside a stream that has been quiet for a minute, bob waits %v", waited)
		}
		end()
		time.Sleep(time.Minute)
	})
}

// N2: who asks for a little every few seconds, as an open page does, does not count as active meanwhile.
func TestN2WhoAsksForALittleIsNotActive(t *testing.T) {
	const moment = 2 * time.Millisecond
	for _, c := range []struct {
		works   time.Duration
		moments int
		waits   time.Duration
	}{{moment / 2, 500, 0}, {2 * moment, 500, moment}, {moment / 2, 1, moment}} {
		synctest.Test(t, func(t *testing.T) {
			q := turns.NewAging(turns.NoLimit, 1, moment)
			end, err := turns.Begin(q.In(t.Context(), turns.Owner{Caller: "ann", Session: "1"}), c.moments)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.works)
			end()
			time.Sleep(time.Second)
			began := time.Now()
			for range 2 {
				place, err := q.TakeBriefly(t.Context(), turns.Owner{Caller: "bob", Session: "1"})
				if err != nil {
					t.Fatal(err)
				}
				defer place.Give()
			}
			if waited := time.Since(began); waited != c.waits {
				t.Errorf("a second after work of %v, of %d moments at most, bob waits %v", c.works, c.moments, waited)
			}
		})
	}
}

// Where nobody takes turns, nothing waits.
func TestPiecesWithoutTurns(t *testing.T) {
	in, end := turns.Pieces(t.Context(), strings.NewReader("all of it"))
	defer end()
	if text, err := io.ReadAll(in); string(text) != "all of it" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if got := turns.OwnerIn(t.Context()); got != (turns.Owner{}) {
		t.Errorf("it belongs to %v", got)
	}
}
