package held

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// reader is a client that has come back, in a goroutine of its own.
type reader struct {
	got   chan string // all that it got, once nothing follows
	stuck chan error  // what each write ends with
}

func read(ctx context.Context, s *Stream, after int, stuck chan error) reader {
	r := reader{make(chan string, 1), stuck}
	go func() {
		var all strings.Builder
		_ = s.Pass(ctx, nil, after, Outlet{
			Write: func(event wire.Parts) error {
				if stuck != nil {
					if err := <-stuck; err != nil {
						return err
					}
				}
				_, data, _ := strings.Cut(string(event.Join()), "data: ")
				all.WriteString(strings.TrimSpace(data))
				return nil
			},
			GiveUp: func() {
				if stuck != nil {
					stuck <- errors.New("it gave up")
				}
			},
		})
		r.got <- all.String()
	}()
	synctest.Wait()
	return r
}

// adds adds a message in a goroutine, and closes what it returns once that is over.
func adds(s *Stream, text string, answer bool) (over chan struct{}) {
	over = make(chan struct{})
	go func() {
		defer close(over)
		s.Add(message(text), answer)
	}()
	synctest.Wait()
	return over
}

func isOver(over chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// SPEC Q2: a client that is back gets an answer that is too large to be held, and one for which others have left no room.
func TestQ2WhoIsBackGetsWhatIsNotHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		full  bool
		bytes int
	}{{"too large", false, maxAnswer + 1}, {"no room", true, maxBefore}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := NewRoom()
				s := room.Session().Open(json.RawMessage("1"), ann, func() {})
				s.Prime()
				if c.full {
					room.bytes.Resize(maxBefore / 2)
				}
				taken := room.bytes.Taken()
				forged := read(t.Context(), s, 1<<30, nil) // a number that no event has yet
				if over := adds(s, strings.Repeat("y", c.bytes), true); !isOver(over) {
					t.Fatal("whoever adds the answer waits")
				}
				if got := <-forged.got; got != strings.Repeat("y", c.bytes) {
					t.Errorf("a client that is back got %d bytes: %.40q", len(got), got)
				}
				if n := room.bytes.Taken(); n > taken {
					t.Errorf("%d bytes more are held", n-taken)
				}
				if got := passed(t, s, 0); !strings.Contains(got, "not held any more") || strings.Contains(got, "yy") {
					t.Errorf("who comes back again gets %.100q", got)
				}
				s.End()
			})
		})
	}
}

// N2: who comes back and says to have an answer that nobody has written yet gets it: whoever adds it would wait for as long as that one
// stays.
func TestN2NobodyHasWhatIsOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {})
		s.Prime()
		first := make(chan error, 1)
		read(t.Context(), s, 1, first)
		large := strings.Repeat("y", maxAnswer+1)
		over := adds(s, large, true)
		again := read(t.Context(), s, 2, nil)
		<-over
		if got := <-again.got; got != large {
			t.Errorf("it got %d bytes", len(got))
		}
		s.End()
	})
}

// SPEC Q2: whoever adds what is not held waits until nobody writes it. If one who is back cannot, the next one gets it, or else nobody.
func TestQ2WhoIsBackFailsToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := NewRoom().Session()
		large := strings.Repeat("y", maxAnswer+1)

		s, first := of.Open(json.RawMessage("1"), ann, func() {}), make(chan error, 1)
		s.Prime()
		before := read(t.Context(), s, 1, first)
		over := adds(s, large, true)
		if isOver(over) {
			t.Fatal("whoever adds the answer does not wait for the one who writes it")
		}
		second := make(chan error)
		after := read(t.Context(), s, 1, second) // so the first one gives up
		if got := <-before.got; got != "" || isOver(over) {
			t.Errorf("the first one got %.40q, and the other one is not waited for: %t", got, isOver(over))
		}
		second <- nil
		if got := <-after.got; got != large {
			t.Errorf("the second one got %d bytes", len(got))
		}
		<-over
		s.End()

		s, first = of.Open(json.RawMessage("1"), ann, func() {}), make(chan error)
		s.Prime()
		ctx, cancel := context.WithCancel(t.Context())
		gone, writes := read(ctx, s, 1, nil), s
		cancel()
		<-gone.got
		if over := adds(writes, large, true); !isOver(over) {
			t.Error("one who has left again is waited for")
		}
		writes.End()

		s = of.Open(json.RawMessage("1"), ann, func() {})
		s.Prime()
		broken := read(t.Context(), s, 1, first)
		over = adds(s, large, true)
		first <- errors.New("the connection broke")
		<-broken.got
		<-over
		if got := passed(t, s, 1); !strings.Contains(got, "not held any more") {
			t.Errorf("after a connection that broke: %.100q", got)
		}
		s.End()
	})
}

// SPEC N2: what is offered may be of a budget that ends with Add, so Add waits for each one who writes it.
func TestN2NobodyWritesWhatIsOverWhenAddReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stuck := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {}), make(chan struct{})
		s.Prime()
		go func() {
			_ = s.Pass(t.Context(), nil, 1, Outlet{func(wire.Parts) error { <-stuck; return context.Canceled }, func() {}})
		}()
		synctest.Wait()
		over := adds(s, strings.Repeat("y", maxAnswer+1), true)
		if got := <-read(t.Context(), s, 1, nil).got; len(got) != maxAnswer+1 {
			t.Errorf("the next one got %d bytes", len(got))
		}
		synctest.Wait()
		if isOver(over) {
			t.Error("Add has returned, and the first one still writes")
		}
		close(stuck)
		<-over
		s.End()
	})
}

// SPEC Q2: what comes before an answer reaches who is back as well, however large, and the answer follows.
func TestQ2ALargeEventBeforeAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {})
		s.Prime()
		r := read(t.Context(), s, 1, nil)
		<-adds(s, "a", false)
		<-adds(s, strings.Repeat("b", maxBefore+1), false)
		<-adds(s, "c", false)
		<-adds(s, "d", true)
		if got := <-r.got; got != "a"+strings.Repeat("b", maxBefore+1)+"cd" {
			t.Errorf("it got %d bytes: %.20q", len(got), got)
		}
		s.End()
	})
}
