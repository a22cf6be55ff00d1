package remote

import "context"

// What is told to the server and has no answer is an answer to the server
// itself, most of all. One that asks faster than it takes answers, be it on
// purpose, must not have Orla hold all of them, and a connection for each.
const (
	maxTells  = 16   // on their way at once
	maxUntold = 1024 // that wait for their turn as well
)

// later tells the server something when its turn has come, after what has to
// come first, without the caller waiting for it. ctx bounds the wait for that, and
// last the telling.
func (s *session) later(ctx, last context.Context, m message, after <-chan struct{}) {
	select {
	case s.untold <- struct{}{}:
	default:
		s.say("%d messages wait to be told to the server already; %s is dropped", maxUntold, m.called())
		return
	}
	s.work.Go(func() {
		defer s.contain()
		defer func() { <-s.untold }()
		if !reached(ctx, after) {
			return
		}
		select {
		case s.tells <- struct{}{}:
			defer func() { <-s.tells }()
		case <-ctx.Done():
			return
		}
		s.tell(last, m)
	})
}
