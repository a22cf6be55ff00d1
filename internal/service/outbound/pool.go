package outbound

import (
	"container/list"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/call/turns"
)

// maxIdle bounds the transports without a request whose connections are kept.
const maxIdle = 256

// maxKept bounds the connections of a pool that no request has: each is a descriptor and its buffers.
const maxKept = 512

// pool has the connections that were made under one policy. Callers do not share any: an answer whose
// header is too long ends the HTTP/2 connection that it came on, and each request on it (SPEC N2).
type pool struct {
	open func(k kind, opened func() (closed func())) *http.Transport

	mu   sync.Mutex // guards the fields that follow
	of   map[kind]*transport
	idle list.List // the *transport without a request, the one that was used last at the front
	kept int       // of all transports
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
	requests int           // those under way; the pool's mu guards it, and the next two
	conns    int           // those that are open
	idle     *list.Element // nil while there are requests
}

func newPool(open func(k kind, opened func() (closed func())) *http.Transport) *pool {
	return &pool{open: open, of: map[kind]*transport{}}
}

// begin returns the transport for a request. end must be called when the answer was read.
func (p *pool) begin(k kind) *transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of[k]
	if t == nil {
		t = &transport{kind: k}
		t.Transport = p.open(k, func() func() {
			p.count(t, 1)
			return func() { p.count(t, -1) }
		})
		p.of[k] = t
	}
	if t.idle != nil {
		p.idle.Remove(t.idle)
		t.idle = nil
	}
	p.change(t, 0, 1)
	return t
}

// count notes that connections of a transport were opened or closed.
func (p *pool) count(t *transport, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(t, n, 0)
}

// change notes how many more connections and requests a transport has. The caller holds mu.
func (p *pool) change(t *transport, conns, requests int) {
	before := t.kept()
	t.conns += conns
	t.requests += requests
	p.kept += t.kept() - before
}

// end ends a request that began. If too many connections are kept then, those are closed of who keeps the most.
func (p *pool) end(t *transport) {
	p.mu.Lock()
	var old, most *transport
	if p.change(t, 0, -1); t.requests == 0 {
		t.idle = p.idle.PushFront(t)
	}
	if p.idle.Len() > maxIdle {
		old = p.idle.Remove(p.idle.Back()).(*transport)
		delete(p.of, old.kind)
	}
	if p.kept > maxKept {
		for _, one := range p.of {
			if most == nil || one.kept() > most.kept() {
				most = one
			}
		}
	}
	p.mu.Unlock()
	for _, one := range []*transport{old, most} {
		if one != nil {
			one.CloseIdleConnections()
		}
	}
}

// kept is how many connections of a transport have no request, if each has one at most. It is never below zero: requests
// that share a connection, or have none yet, let no other transport keep more.
func (t *transport) kept() int { return max(0, t.conns-t.requests) }

// closeIdle closes the connections without a request.
func (p *pool) closeIdle() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.of))
	p.mu.Unlock()
	for _, t := range all {
		t.CloseIdleConnections()
	}
}
