package mcpbridge_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// A batch may have so many messages and no more. A large one is refused as a whole,
// and starts nothing.
func TestS2ABatchIsBounded(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	batch := func(n int) string {
		return "[" + strings.Repeat(call(1, "no-such")+",", n-1) + call(1, "echo") + "]"
	}
	before := runtime.NumGoroutine()
	r := f.post(t, batch(100_000), "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-03-26")
	if r.status != http.StatusRequestEntityTooLarge || r.code != -32600 || !strings.Contains(r.raw, "100 messages at most") {
		t.Errorf("a batch of 100 000: %d %.300s", r.status, r.raw)
	}
	// Not one look: goroutines that have ended count too while the collector frees their stacks.
	eventually(t, "there are no goroutines for its messages", func() bool { return runtime.NumGoroutine() <= before+200 })
	p := w.stdio(t, 64<<20)
	p.open(t)
	p.write(t, batch(100_000)+"\n")
	if r := p.next(t); r.code != -32600 || !strings.Contains(r.raw, "100 messages at most") {
		t.Errorf("over stdio: %.300s", r.raw)
	}
}
