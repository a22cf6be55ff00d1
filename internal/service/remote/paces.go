package remote

import (
	"sync"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
)

// paces slow down what a server sends unasked, for each caller whose requests it belongs to: what is sent to one does not
// hold up the answers for another (SPEC N2).
type paces struct {
	mu sync.Mutex // guards of, and the streams of each
	of map[turns.Owner]*callersPace
}

// callersPace is the pace of one caller, on all streams.
type callersPace struct {
	streams int
	unasked pace.Shared // of messages
	idle    pace.Shared // of what is not a message
}

// join returns the pace of a caller. leave must be called afterwards.
func (p *paces) join(whose turns.Owner) *callersPace {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := whose.Tenant()
	c := p.of[of]
	if c == nil {
		if p.of == nil {
			p.of = map[turns.Owner]*callersPace{}
		}
		c = &callersPace{}
		p.of[of] = c
	}
	c.streams++
	return c
}

// leave forgets the callers that have no stream, and nothing to wait for, if this was the last stream of one.
func (p *paces) leave(c *callersPace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.streams--; c.streams > 0 {
		return // this is called for each message, and there may be many callers
	}
	for of, c := range p.of {
		if c.streams == 0 && c.unasked.Settled() && c.idle.Settled() {
			delete(p.of, of)
		}
	}
}

// allFaster is how many times as fast as one caller all of them may be.
const allFaster = 4

// pauses waits if a server has sent too much unasked: to one caller, or to all.
func (s *session) pauses(whose turns.Owner, messages, bytes int) {
	c := s.paces.join(whose)
	defer s.paces.leave(c)
	c.unasked.Wait(s.conn.Over(), messages, bytes)
	s.all.Wait(s.conn.Over(), messages, bytes)
}
