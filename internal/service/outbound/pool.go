package outbound

import (
	"container/list"
	"net/http"
	"sync"

	"github.com/orla-project/orla/internal/call/turns"
)

// maxIdle bounds the transports without a request whose connections are kept.
const maxIdle = 256

// pool has the connections that were made under one policy. Callers do not share any: an answer whose
// header is too long ends the HTTP/2 connection that it came on, and each request on it (SPEC N2).
type pool struct {
	open func(kind) *http.Transport

	mu   sync.Mutex // guards the fields that follow
	of   map[kind]*transport
	idle list.List // the *transport without a request, the one that was used last at the front
}

// kind says which requests may share connections.
type kind struct {
	caller turns.Owner // a tenant; the zero Owner for Orla's own requests
	h2c    bool        // HTTP/2 without TLS
	floor  class       // the least class of address that they connect to
}

// transport has the connections of one kind of request.
type transport struct {
	*http.Transport
	kind     kind
	requests int           // those under way
	idle     *list.Element // nil while there are requests
}

func newPool(open func(kind) *http.Transport) *pool {
	return &pool{open: open, of: map[kind]*transport{}}
}

// begin returns the transport for a request. end must be called when the answer was read.
func (p *pool) begin(k kind) *transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of[k]
	if t == nil {
		t = &transport{Transport: p.open(k), kind: k}
		p.of[k] = t
	}
	if t.idle != nil {
		p.idle.Remove(t.idle)
		t.idle = nil
	}
	t.requests++
	return t
}

// end ends a request that began.
func (p *pool) end(t *transport) {
	p.mu.Lock()
	var old *transport
	if t.requests--; t.requests == 0 {
		t.idle = p.idle.PushFront(t)
	}
	if p.idle.Len() > maxIdle {
		old = p.idle.Remove(p.idle.Back()).(*transport)
		delete(p.of, old.kind)
	}
	p.mu.Unlock()
	if old != nil {
		old.CloseIdleConnections()
	}
}

// closeIdle closes the connections without a request.
func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.of {
		t.CloseIdleConnections()
	}
}
