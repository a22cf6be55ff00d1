package supervisor

import "github.com/orla-project/orla/internal/mcp/peer"

// HoldCalls takes the lock that calls take, until release is called.
func (s *Supervisor) HoldCalls() (release func()) {
	s.Lock().Lock()
	return s.Lock().Unlock
}

// Refresh publishes a new catalog of what the peers offer now, whatever rests.
func (s *Supervisor) Refresh() {
	for _, l := range s.living {
		if l.peer != nil {
			l.prepare(func() bool { return true })
		}
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.publish()
}

// RefreshInTurn publishes a new catalog as a peer that was heard before does: not while it rests.
func (s *Supervisor) RefreshInTurn() {
	s.refresh(s.asked.Add(1), &living{})
}

// RefreshFirst publishes a new catalog as a peer with its first lists does, which waits for no rest.
func (s *Supervisor) RefreshFirst() {
	first := &living{offers: &peer.Offers{}}
	first.shown.Store(&shown{offers: &peer.Offers{Known: true}})
	s.refresh(s.asked.Add(1), first)
}

// Asked returns how many times somebody wanted a new catalog.
func (s *Supervisor) Asked() uint64 { return s.asked.Load() }

// LateOf returns what is done when the look at what a peer offers takes too long.
func (s *Supervisor) LateOf(name string) func() {
	l := s.living[name]
	return func() { s.goOnWithout(l, l.looks.Load()+1) }
}
