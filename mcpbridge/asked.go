package mcpbridge

import (
	"sync/atomic"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// asked counts what waits for answers of clients.
type asked struct {
	questions atomic.Int64
	calls     atomic.Int64 // that have at least one question
}

// Asked returns how many questions wait for answers of clients, and how many calls do so.
func (b *Bridge) Asked() (questions, calls int) {
	return int(b.asked.questions.Load()), int(b.asked.calls.Load())
}

// asking counts a question of the request's peer until the function that it returns is called.
func (r *Request) asking() (answered func()) {
	counts, call := &r.bridge.asked, r.Method == wire.MethodCall
	counts.questions.Add(1)
	if r.asks.Add(1) == 1 && call {
		counts.calls.Add(1)
	}
	return func() {
		if r.asks.Add(-1) == 0 && call {
			counts.calls.Add(-1)
		}
		counts.questions.Add(-1)
	}
}
