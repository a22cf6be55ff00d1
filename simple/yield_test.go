package simple

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC N2: a call whose templates take long lets others have their turn.
func TestN2TemplatesGiveTheirTurnToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		open := func(session string) (*turns.Account, *work) {
			ctx, release := room.Open(t.Context(), turns.Owner{Caller: "one", Session: session})
			t.Cleanup(release)
			return turns.AccountOf(ctx), &work{ctx: ctx}
		}
		mine, w := open("1")
		for range turns.Workers() - 1 {
			if err := mine.BeginWork(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.add(partsAtOnce + 1); err != nil {
			t.Fatal(err)
		}
		other, _ := open("2")
		had := false
		go func() {
			if err := other.BeginWork(t.Context()); err != nil {
				t.Error(err)
			}
			had = true
			other.EndWork()
		}()
		synctest.Wait()
		if err := w.add(partsBetween); err != nil || had {
			t.Fatalf("before its turn is over, another has one: %v, %v", had, err)
		}
		time.Sleep(turnLength)
		if err := w.add(partsBetween); err != nil || !had {
			t.Errorf("after its turn, another has had one: %v, %v", had, err)
		}
		w.end()
		for range turns.Workers() - 1 {
			mine.EndWork()
		}
	})
}
