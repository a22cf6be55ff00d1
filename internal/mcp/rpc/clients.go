package rpc

import (
	"encoding/json"

	"github.com/orla-project/orla/internal/call/turns"
)

// add notes that a request of a client of a caller is sent.
func (s *served) add(client string, tenant turns.Owner) {
	if s.first != "" {
		s.shared = true
		s.tenants = s.tenants || tenant != s.tenant
	}
	s.first, s.tenant = client, tenant
}

// Sole returns the id and the About of the newest request in flight if all requests
// that the other side has ever been sent were of one client (Request.Client). shared
// reports that they were of several. id is 0 if no request with an About is in flight.
func (c *Conn) Sole() (id int64, about any, shared bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served.shared {
		return 0, nil, true
	}
	newest := int64(-1)
	for at, p := range c.calls.pending {
		if p.number > newest && p.client != "" && p.about != nil {
			newest, id, about = p.number, at, p.about
		}
	}
	return id, about, false
}

// About returns Request.About of the call with an id; nil if it is not in flight.
func (c *Conn) About(id int64) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.calls.pending[id]; p != nil {
		return p.about
	}
	return nil
}

// Note passes a notification to the call with an id, and reports whether that is in flight.
func (c *Conn) Note(id int64, method string, params json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.calls.pending[id]
	if p == nil {
		return false
	}
	c.noteLocked(p, method, params)
	return true
}

func (c *Conn) noteLocked(p *Pending, method string, params json.RawMessage) {
	// The last place is the answer's.
	size := int64(len(params))
	if len(p.events) < cap(p.events)-1 && p.noted.Load()+size <= maxNoteBytes && (size == 0 || c.notes.Try(p.Owner, size)) {
		p.noted.Add(size)
		p.events <- event{method: method, params: params}
	}
}
