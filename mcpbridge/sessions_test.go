package mcpbridge

import (
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SPEC G7: a session that its client has ended is not counted, though a call of it
// ends later, or comes at that very moment.
func TestG7AnEndedSessionIsNotCounted(t *testing.T) {
	s := newSessions(mcp.NewServer(&mcp.Implementation{Name: "test"}, nil))
	s.begun("one")
	s.opened("one", "ann", "ann", client{})
	call, ok := s.useOwn("one", "ann")
	if !ok {
		t.Fatal("it is not known")
	}
	end, _ := s.use("one", "ann")
	s.closing("one")
	end(&response{status: http.StatusNoContent})
	if _, ok := s.useOwn("one", "ann"); ok {
		t.Error("a call of it is let in")
	}
	call(&response{status: http.StatusOK})
	if n := s.count(); n != 0 {
		t.Errorf("%d sessions are counted", n)
	}
	if _, ok := s.useOwn("one", "ann"); ok || s.count() != 0 {
		t.Errorf("a call brings it back: %v, %d are counted", ok, s.count())
	}
}
