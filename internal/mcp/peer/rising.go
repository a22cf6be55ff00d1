package peer

import (
	"context"
	"encoding/json"
	"sync"
)

// Rising returns a client that gets the progress of a call from several sources, such as repetitions, each of
// which reports it from the start. "The progress value MUST increase with each notification" (MCP, Progress).
// So values that do not increase are dropped.
func Rising(c Client) Client { return &rising{Client: c} }

type rising struct {
	Client

	mu      sync.Mutex // guards what follows
	reached *float64   // nil before the first notification
}

// Notify implements Client.
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
