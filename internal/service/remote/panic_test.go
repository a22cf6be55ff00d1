package remote_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/service/remote"
)

// SPEC F2: a panic while handling a message of a server ends its session alone. The call in flight
// fails, and the capsule has another session.
func TestF2APanicOverWhatAServerSaidEndsItsSessionAlone(t *testing.T) {
	called := make(chan struct{}, 1)
	mute := make(chan struct{})
	server := script(t, func(_ http.ResponseWriter, r *http.Request, m asked) bool {
		select {
		case <-mute:
			return false
		default:
		}
		if m.Method != "tools/call" {
			return false
		}
		called <- struct{}{}
		<-r.Context().Done()
		return true
	})
	sessions := make(chan capsule.Connection, 16)
	l := connect(t, server.URL, func(o *options) { o.started = func(p capsule.Connection) { sessions <- p } })
	l.offers(1)
	failed := make(chan error, 1)
	go func() {
		_, err := l.call("t", "{}", nil)
		failed <- err
	}()
	within(t, "the server is called", called)
	close(mute)
	remote.Curse(<-sessions)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("the call in flight: %v", err)
	}
	l.becomes("READY")
	if text := l.text("far--t", "{}"); text != "called" {
		t.Errorf("a call after it: %s", text)
	}
	log := l.log.String()
	if n := strings.Count(log, "panic while handling a message of a server"); n != 1 || !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "cursed_test.go") {
		t.Errorf("the log has the panic %d times", n)
	}
}
