package httpfront

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Sessions that begin wait for each other, and nothing else waits for them.
func TestG7SessionsBeginInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sentFront{Front: New(newBridge(), Settings{Loopback: true})}
		post := func(body string, headers ...string) bool {
			answered := f.send(t, 200, "127.0.0.2", "POST", "/mcp", body, append(headers, posted...)...)
			time.Sleep(2 * moment) // in a bubble; those before no longer count among what is worked on
			synctest.Wait()
			return over(answered)
		}
		if !post(aGreeting) {
			t.Fatal("a session waits that begins alone")
		}
		id := ""
		for known := range f.sessions.known {
			id = known
		}
		held := 0 // places of sessions that begin
		for f.openings.Try(turns.Owner{}) {
			held++
		}
		const many = 5
		for range many {
			if post(aGreeting) {
				t.Error("a session does not wait")
			}
		}
		if !post(aPing, wire.SessionHeader, id) {
			t.Error("a session waits that has begun")
		}
		if !post(echoCall) {
			t.Error("a call without a session waits")
		}
		for range held {
			f.openings.Give(turns.Owner{})
		}
		f.requests.Wait()
		if n := f.sessions.count(); n != 1+many {
			t.Errorf("%d sessions have begun, want %d", n, 1+many)
		}
		f.CloseSessions()
	})
}
