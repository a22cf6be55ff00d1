package supervisor

// HoldCalls takes the lock that calls take, until release is called.
func (s *Supervisor) HoldCalls() (release func()) {
	s.mu.Lock()
	return s.mu.Unlock
}
