package linerpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// An answer that finds no room keeps no other waiting; it comes when there is
// room, and whichever way its call ends, nothing of it stays.
func TestAnAnswerWithoutRoomWaitsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		const all, large = 4 << 20, 256 << 10
		room := turns.NewRoom(all)
		other, letGoOther := room.Open(t.Context(), turns.Owner{Session: "flood"})
		if err := turns.AccountOf(other).Need(other, all/2+turns.Little); err != nil { // all that one line may have
			t.Fatal(err)
		}
		beyond, letGoBeyond := room.Open(t.Context(), turns.Owner{Session: "beyond"}) // nobody else may go beyond the limit
		if err := turns.AccountOf(beyond).Need(beyond, all+turns.Little); err != nil {
			t.Fatal(err)
		}
		free := room.Free()

		ctx, letGo := room.Open(t.Context(), turns.Owner{Session: "flood"})
		left, cancel := context.WithCancelCause(t.Context())
		leaving, letGoLeaving := room.Open(left, turns.Owner{Session: "flood"})
		waits, leaves := p.calls(ctx, rpc.Request{Method: "large"}), p.calls(leaving, rpc.Request{Method: "large"})
		for range 2 {
			m := p.gets()
			p.says(`{"jsonrpc":"2.0","id":%d,"result":"%s"}`, m.ID, strings.Repeat("x", large))
		}
		small := p.calls(t.Context(), rpc.Request{Method: "small"})
		p.answers(p.gets().ID)
		if got := <-small; got.err != nil {
			t.Errorf("a small answer behind two that wait: %v", got.err)
		}
		synctest.Wait()
		select {
		case got := <-waits:
			t.Errorf("without room, a call ends with %d bytes, %v", len(got.result), got.err)
		default:
		}
		if got := room.InHand(); got < large || room.Free() != free {
			t.Errorf("%d bytes are in hand, and %d free, want %d", got, room.Free(), free)
		}
		gone := errors.New("gone")
		cancel(gone)
		if got := <-leaves; !errors.Is(got.err, gone) {
			t.Errorf("the call that left ends with %v", got.err)
		}
		letGoLeaving()
		letGoOther()
		if got := <-waits; got.err != nil || len(got.result) < large {
			t.Errorf("with room, it ends with %d bytes, %v", len(got.result), got.err)
		}
		letGo()
		letGoBeyond()
		if room.Free() != all || room.InHand() != 0 {
			t.Errorf("%d bytes are free at the end, %d in hand; want %d and 0", room.Free(), room.InHand(), all)
		}
	})
}

// The answer to a call whose tenant has taken all room keeps the process unread for its
// tenant alone (SPEC N2): it fails where a call of another tenant's waits, or begins.
func TestN2AnAnswerWithoutRoomStallsNoOtherTenant(t *testing.T) {
	for name, before := range map[string]bool{"that waits": true, "that begins": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				const all, large = 4 << 20, 256 << 10
				ann, bob := turns.Owner{Caller: "ann", Session: "1"}, turns.Owner{Caller: "bob", Session: "2"}
				room := turns.NewRoom(all)
				full, release := room.Open(t.Context(), ann)
				defer release()
				if err := turns.AccountOf(full).Need(full, all/2+turns.Little); err != nil {
					t.Fatal(err)
				}
				for turns.AccountOf(full).Later(large) { // all that may be in hand
				}
				beyond, releaseBeyond := room.Open(t.Context(), turns.Owner{Caller: "ann", Session: "3"}) // nobody else may go beyond the limit
				defer releaseBeyond()
				if err := turns.AccountOf(beyond).Need(beyond, all+turns.Little); err != nil {
					t.Fatal(err)
				}
				ctx, releaseOwn := room.Open(t.Context(), ann)
				defer releaseOwn()
				floods := p.calls(ctx, rpc.Request{Method: "large", Owner: ann})
				id := p.gets().ID
				var asks <-chan outcome
				if before {
					asks = p.calls(t.Context(), rpc.Request{Method: "small", Owner: bob})
				}
				p.says(`{"jsonrpc":"2.0","id":%d,"result":"%s"}`, id, strings.Repeat("x", large))
				synctest.Wait()
				if !before {
					if len(floods) > 0 {
						t.Errorf("without room, and alone, it ends with %v", (<-floods).err)
					}
					asks = p.calls(t.Context(), rpc.Request{Method: "small", Owner: bob})
				}
				p.answers(p.gets().ID)
				if got := <-asks; got.err != nil {
					t.Errorf("another tenant's call: %v", got.err)
				}
				if got := <-floods; !errors.Is(got.err, rpc.ErrNoRoom) {
					t.Errorf("the call without room ends with %d bytes, %v", len(got.result), got.err)
				}
			})
		})
	}
}

// SPEC N2: a large answer is read in a turn of its caller. Without one, the reader does not wait for long, nor
// where a call of another caller waits, or begins; and it does not keep the turn.
func TestN2ALargeAnswerIsReadInTurn(t *testing.T) {
	ann, bob := turns.Owner{Caller: "ann", Session: "1"}, turns.Owner{Caller: "bob", Session: "2"}
	for name, test := range map[string]struct {
		held, before, begins bool
		size                 int
		waits                bool // the reader does
		most                 time.Duration
	}{
		"a turn is free":              {size: turns.Heavy},
		"a small answer":              {held: true, size: turns.Heavy / 2},
		"no turn is free":             {held: true, size: turns.Heavy, waits: true, most: time.Second},
		"another caller waits":        {held: true, before: true, size: turns.Heavy},
		"another caller's call comes": {held: true, begins: true, size: turns.Heavy, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				room := turns.NewRoom(64 << 20)
				held, release := room.Open(t.Context(), turns.Owner{Caller: "ann", Session: "3"})
				defer release()
				take := func() {
					for range turns.Workers() {
						if err := turns.AccountOf(held).BeginWork(held); err != nil {
							t.Fatal(err)
						}
					}
				}
				if test.held {
					take()
				}
				began := time.Now()
				ctx, releaseOwn := room.Open(t.Context(), ann)
				defer releaseOwn()
				large := p.calls(ctx, rpc.Request{Method: "large", Owner: ann})
				id := p.gets().ID
				if test.before {
					p.calls(t.Context(), rpc.Request{Method: "small", Owner: bob})
					p.gets()
				}
				p.says(`{"jsonrpc":"2.0","id":%d,"result":"%s"}`, id, strings.Repeat("x", test.size))
				synctest.Wait()
				if waits := len(large) == 0; waits != test.waits {
					t.Errorf("the reader waits: %v", waits)
				}
				if test.begins {
					p.calls(t.Context(), rpc.Request{Method: "small", Owner: bob})
					p.gets()
				}
				if got := <-large; got.err != nil || time.Since(began) > test.most {
					t.Errorf("the call ends after %v with %v", time.Since(began), got.err)
				}
				if !test.held {
					take() // all are there
				}
			})
		})
	}
}
