package mcpbridge_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC S2: the line that a call of no tool leaves in the log is short, whatever its client
// calls the tool.
func TestS2ACallOfNoToolLeavesAShortLine(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for _, name := range []string{strings.Repeat("x", 8<<10), strings.Repeat("\u2028", 2<<10), strings.Repeat(`\"`, 4<<10)} {
		f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"}}`, "Mcp-Session-Id", session)
	}
	var lines []string
	testkit.Eventually(t, "each call has its line", func() bool { // it may come after the answer
		lines = strings.Split(strings.TrimSpace(w.log.String()), "\n")
		return len(lines) >= 3
	})
	for _, line := range lines {
		if len(line) > 2<<10 {
			t.Errorf("a line of %d bytes: %.300s", len(line), line)
		}
	}
}
