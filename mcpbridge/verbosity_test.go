package mcpbridge_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
)

func setLevel(t *testing.T, c *mcp.ClientSession, level mcp.LoggingLevel) { //nolint:staticcheck // deprecated by the newest era only
	t.Helper()
	if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil { //nolint:staticcheck // deprecated by the newest era only
		t.Fatal(err)
	}
}

// A level that a session sets which begins while another one sets its own stands.
func TestALevelOfASessionThatBeginsMeanwhile(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, mcpbridge.HTTPSettings{})
	first := f.connect(t, "2025-11-25", nil)
	var second *mcp.ClientSession
	var begun atomic.Bool
	begin := func() {
		if !begun.Swap(true) {
			second = f.connect(t, "2025-11-25", nil)
			setLevel(t, second, "debug")
		}
	}
	w.bridge.OnLiving(func(levels, _ bool) {
		if levels {
			begin()
		}
	})
	setLevel(t, first, "error")
	begin() // it was not let before
	if !w.bridge.WantsMessages(second.ID()) {
		t.Error("what the second session wants is forgotten")
	}
	if told := s.asked("logging/setLevel"); !slices.Contains(told, `logging/setLevel {"level":"debug"}`) {
		t.Errorf("the peer was told %q", told)
	}
}
