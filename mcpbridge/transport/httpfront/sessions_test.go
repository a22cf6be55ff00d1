package httpfront

import (
	"testing"

	"github.com/orla-project/orla/mcpbridge/client"
)

// SPEC G7: a session that its client has ended is not counted, though a call of it
// ends later, or comes at that very moment.
func TestG7AnEndedSessionIsNotCounted(t *testing.T) {
	s := newSessions()
	if _, ok := s.admit(10, party{who: "ann"}, true); !ok {
		t.Fatal("there is no room")
	}
	u := &usage{Session: client.New("one"), user: "ann", party: party{who: "ann"}}
	s.opened(u)
	if s.find("one", "ann") != u || s.find("one", "bob") != nil {
		t.Fatal("it is not ann's alone")
	}
	s.enter(u)
	if over := s.removeOne(u); len(over) != 1 || len(s.removeOne(u)) != 0 {
		t.Errorf("it was ended %d times", len(over))
	}
	if s.find("one", "ann") != nil {
		t.Error("a call of it is let in")
	}
	s.leave(u)
	if n := s.count(); n != 0 {
		t.Errorf("%d sessions are counted", n)
	}
}
