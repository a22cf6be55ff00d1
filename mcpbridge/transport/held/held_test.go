package held

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

var ann = turns.Owner{Caller: "ann", Session: "1"}

// passed returns the data of the events that a stream has after one with a number.
func passed(t *testing.T, s *Stream, after int) string {
	t.Helper()
	var all strings.Builder
	done := make(chan struct{})
	close(done)
	err := s.Pass(context.Background(), done, after, to(func(event []byte) error {
		_, data, _ := strings.Cut(string(event), "data: ")
		all.WriteString(strings.TrimSpace(data))
		return nil
	}))
	if err != nil {
		t.Error(err)
	}
	return all.String()
}

// to returns an Outlet that never has to give up.
func to(write func(event []byte) error) Outlet {
	return Outlet{func(event wire.Parts) error { return write(event.Join()) }, func() {}}
}

func message(text string) wire.Parts { return wire.Parts{[]byte(text)} }

// SPEC Q2: nothing is held for longer than a minute after the end.
func TestQ2NothingIsHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := NewRoom()
		of := room.Session()
		s := of.Open(json.RawMessage("1"), ann, func() {})
		event, own := s.Add(message("a"), false)
		if !own {
			t.Error("somebody else is to write the first event")
		}
		s.Add(message("b"), true)
		s.End()
		id := strings.TrimPrefix(strings.Split(string(event.Join()), "\n")[0], "id: ")
		time.Sleep(Keep - time.Second) // of a bubble
		if found, n := of.Find(id); found != s || n != 1 || room.bytes.Taken() == 0 {
			t.Errorf("%v %d, %d bytes", found, n, room.bytes.Taken())
		}
		if got := passed(t, s, 1); got != "b" {
			t.Errorf("after the first event: %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if found, _ := of.Find(id); found != nil || room.bytes.Taken() != 0 {
			t.Errorf("%v is held, %d bytes", found, room.bytes.Taken())
		}
		if !strings.Contains(string(Lost(id)), `"id":1`) {
			t.Errorf("%s", Lost(id))
		}
	})
}

// SPEC Q2, N2: what is held is bounded for a stream, for a session and in all.
func TestQ2WhatIsHeldIsBounded(t *testing.T) {
	room := NewRoom()
	of := room.Session()
	s := of.Open(json.RawMessage(`"x"`), ann, func() {})
	for n := range 1000 {
		s.Add(message(strings.Repeat(string(rune('a'+n%26)), 1<<10)), false)
	}
	if n := room.bytes.Taken(); n > maxBefore {
		t.Errorf("%d bytes are held before an answer", n)
	}
	if got := passed(t, s, 999); got != strings.Repeat(string(rune('a'+999%26)), 1<<10) {
		t.Errorf("the newest event is %.10q", got)
	}
	if got := len(passed(t, s, 0)); got < maxBefore/2 {
		t.Errorf("%d bytes of the newest events are held", got)
	}
	s.Add(message(strings.Repeat("y", maxAnswer)), true) // with its id it is larger
	if got := passed(t, s, 999); !strings.Contains(got, "not held any more") || strings.Contains(got, "yyy") {
		t.Errorf("instead of an answer that is too large: %.100q", got)
	}
	if n := room.bytes.Taken(); n > each {
		t.Errorf("%d bytes are held", n)
	}
	answers := 0
	for range 100 {
		s := of.Open(json.RawMessage("1"), ann, func() {})
		if s == nil {
			break
		}
		s.Add(message(strings.Repeat("z", maxAnswer/4)), true)
		if strings.HasPrefix(passed(t, s, 0), "z") {
			answers++
		}
	}
	if n := room.bytes.Taken(); answers == 0 || n > maxBytes/2 {
		t.Errorf("one session has %d answers, and %d of %d bytes", answers, n, maxBytes)
	}
	bob := room.Session().Open(json.RawMessage("1"), turns.Owner{Caller: "bob", Session: "2"}, func() {})
	if bob == nil {
		t.Fatal("there is no room for another caller")
	}
	if bob.Add(message(strings.Repeat("z", maxAnswer/4)), true); !strings.HasPrefix(passed(t, bob, 0), "z") {
		t.Error("there is no room for the answer of another caller")
	}
}

// SPEC Q2: where there is no room, the events before an answer make room for it.
func TestQ2AnAnswerHasRoomFirst(t *testing.T) {
	of := NewRoom().Session()
	full := of.Open(json.RawMessage("1"), ann, func() {})
	full.Add(message(strings.Repeat("a", maxBefore/2)), false)
	for of.Open(json.RawMessage("1"), ann, func() {}) != nil { // until there is no room
	}
	if full.Add(message(strings.Repeat("z", maxBefore/4)), true); !strings.HasPrefix(passed(t, full, 0), "z") {
		t.Error("the events before an answer do not make room for it")
	}
}

// SPEC Q2: a client that comes back to a request that ends without an answer does not wait for ever.
func TestQ2AnEndWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {})
		s.Prime()
		got := make(chan string)
		go func() {
			var all string
			_ = s.Pass(context.Background(), nil, 1, to(func(event []byte) error { all += string(event); return nil }))
			got <- all
		}()
		synctest.Wait()
		if _, own := s.Add(message("a"), false); own {
			t.Error("the connection of the request is to write what somebody else passes on")
		}
		synctest.Wait()
		s.End()
		if all := <-got; !strings.Contains(all, "not held any more") || !strings.Contains(all, "data: a\n") || s.Over(2) || !s.Over(3) {
			t.Errorf("it got %s", all)
		}
	})
}

// SPEC Q2, H4: an answer that comes as the session ends is written all the same.
func TestQ2AnAnswerAtTheEndOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := NewRoom().Session()
		for range 64 { // which of two that are ready is first is chance
			s, done, got := of.Open(json.RawMessage("1"), ann, func() {}), make(chan struct{}), make(chan string, 1)
			go func() {
				var all string
				_ = s.Pass(context.Background(), done, 0, to(func(event []byte) error { all += string(event); return nil }))
				got <- all
			}()
			synctest.Wait()
			s.Add(message("here"), true)
			close(done)
			if all := <-got; !strings.Contains(all, "here") {
				t.Fatalf("it got %q", all)
			}
		}
	})
}

// An answer for which there is no room is not copied, whoever writes it.
func TestQ2WhatIsNotHeldIsNotCopied(t *testing.T) {
	s := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {})
	answer := message(strings.Repeat("y", maxAnswer+1))
	event, _ := s.Add(answer, true)
	if len(event) < 2 || &event[1][0] != &answer[0][0] {
		t.Errorf("%d parts, of which none is the answer", len(event))
	}
}

// A client that comes back again ends what is written to the one before.
func TestQ2TheReaderBeforeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewRoom().Session().Open(json.RawMessage("1"), ann, func() {})
		s.Add(message("a"), false)
		stuck, gaveUp := make(chan struct{}), 0
		go func() {
			_ = s.Pass(context.Background(), nil, 0, Outlet{
				func(wire.Parts) error { <-stuck; return context.Canceled }, func() { gaveUp++; close(stuck) },
			})
		}()
		synctest.Wait()
		s.Add(message("b"), true)
		if got := passed(t, s, 0); got != "ab" {
			t.Errorf("the second one got %q", got)
		}
		synctest.Wait()
		s.End()
		if passed(t, s, 0); gaveUp != 1 {
			t.Errorf("the first one was told %d times to give up", gaveUp)
		}
	})
}
