package peer

import (
	"context"
	"encoding/json"
)

// reportStep is how much the progress grows with each message of a Reporter: so little that what the peer itself
// reports later is more.
const reportStep = 1e-6

// Reporter returns a function that sends messages of Orla's own to a client as progress of its request, if it
// wants progress. c may be nil.
func Reporter(ctx context.Context, c Client, prefix string) func(message string) {
	if c == nil || !c.WantsProgress() {
		return func(string) {}
	}
	n, last := 0, ""
	return func(message string) {
		if message == last {
			return
		}
		n, last = n+1, message
		params, err := json.Marshal(map[string]any{"progressToken": 0, "progress": float64(n) * reportStep, "message": prefix + message})
		if err == nil {
			c.Notify(ctx, "notifications/progress", params)
		}
	}
}
