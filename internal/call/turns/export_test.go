package turns

// Join waits without a goroutine. The function it returns leaves, or gives back.
func (q *Queue) Join(owner Owner) (leave func()) {
	n, at := q.join(owner, nil)
	turn := at.Value.(chan struct{})
	return func() { q.leave(n, at, turn) }
}

// Join waits without a goroutine. The function it returns leaves, or gives back.
func (s *Shares) Join(owner Owner, n int64) (leave func()) {
	at := s.join(owner, n)
	w := at.Value.(*sharer)
	return func() { s.leave(owner, at, w) }
}

// Known returns how many sessions and callers are kept.
func (s *Shares) Known() (sessions, callers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions), len(s.tenants)
}

// Add takes n even if that exceeds the limit.
func (s *Shares) Add(owner Owner, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(s.sessionLocked(owner), n)
}
