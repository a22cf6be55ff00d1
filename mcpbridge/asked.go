package mcpbridge

import (
	"sync/atomic"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// asked counts requests that have asked their clients something.
type asked struct {
	requests atomic.Int64 // that are in flight
	waiting  atomic.Int64 // of these, calls that wait for an answer
}

// Asked returns how many requests in flight have asked their clients something, and how many of them are calls that wait
// for an answer.
func (b *Bridge) Asked() (requests, waiting int) {
	return int(b.asked.requests.Load()), int(b.asked.waiting.Load())
}

// asks is what a request has asked its client.
type asks struct {
	open    atomic.Int32 // questions that wait for an answer
	counted atomic.Bool  // in asked.requests
	over    atomic.Bool  // its peer has answered it
}

// Asking counts a question of the request's peer until the function that it returns is called.
func (r *Request) Asking() (answered func()) {
	counts, call := &r.bridge.asked, r.Method == wire.MethodCall
	if !r.asks.counted.Swap(true) {
		counts.requests.Add(1)
	}
	if r.asks.over.Load() {
		r.uncount()
	}
	if r.asks.open.Add(1) == 1 && call {
		counts.waiting.Add(1)
	}
	return func() {
		if r.asks.open.Add(-1) == 0 && call {
			counts.waiting.Add(-1)
		}
	}
}

// worked says that the request's peer has answered it.
func (r *Request) worked() {
	r.asks.over.Store(true) // before, so that a question that comes now is not counted for good
	r.uncount()
}

func (r *Request) uncount() {
	if r.asks.counted.Swap(false) {
		r.bridge.asked.requests.Add(-1)
	}
}
