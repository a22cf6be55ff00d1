package retry

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// rising is the client of a call that may be repeated. A repeated call reports its progress from the start,
// but "the progress value MUST increase with each notification" (MCP, Progress). So values that do not
// increase are dropped.
type rising struct {
	peer.Client

	mu      sync.Mutex // guards what follows
	reached *float64   // nil before the first notification
}

// Notify implements peer.Client.
func (c *rising) Notify(ctx context.Context, method string, params json.RawMessage) {
	if method == "notifications/progress" && !c.rises(params) {
		return
	}
	c.Client.Notify(ctx, method, params)
}

// rises reports whether params say more than was reached. What says nothing
// that can be compared is passed on.
func (c *rising) rises(params json.RawMessage) bool {
	var p struct {
		Progress *float64 `json:"progress"`
	}
	if json.Unmarshal(params, &p) != nil || p.Progress == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reached != nil && *p.Progress <= *c.reached {
		return false
	}
	c.reached = p.Progress
	return true
}
