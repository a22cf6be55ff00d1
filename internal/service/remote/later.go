package remote

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/orla-project/orla/internal/call/turns"
)

// What is told to the server and has no answer is an answer to the server
// itself, most of all. One that asks faster than it takes answers, be it on
// purpose, must not have Orla hold all of them, and a connection for each. Answers
// of one caller are bounded by these, and those of all by twice as many.
const (
	maxTells  = 16   // on their way at once
	maxUntold = 1024 // that wait for their turn as well
	// leastUntoldBytes is how many bytes of them there is room for at least.
	leastUntoldBytes = 64 << 20
)

// later tells the server something when its turn has come, after what has to
// come first, without the caller waiting for it. ctx bounds the wait for that, and
// last the telling.
func (s *session) later(ctx, last context.Context, m message, after <-chan struct{}) {
	whose := s.asked.answers(m)
	if !s.untold.Try(whose, 1) {
		s.say("%d messages wait to be told to the server already; %s is dropped", s.untold.Taken(), m.called())
		return
	}
	size := int64(len(m.text))
	if !s.untoldBytes.Try(whose, size) {
		s.untold.Give(whose, 1)
		s.say("%d bytes wait to be told to the server already; %s is dropped", s.untoldBytes.Taken(), m.called())
		return
	}
	s.work.Go(func() {
		defer s.contain()
		defer s.untold.Give(whose, 1)
		defer s.untoldBytes.Give(whose, size)
		if !reached(ctx, after) || s.tells.Take(ctx, whose, 1) != nil {
			return
		}
		defer s.tells.Give(whose, 1)
		s.tell(last, m)
	})
}

// questions are the requests of a server that came on the stream of an answer:
// the answer to one takes the same share.
type questions struct {
	mu    sync.Mutex // guards the fields that follow
	whose map[string]turns.Owner
	older map[string]turns.Owner // those before: of one that the server cancels nothing is heard
}

const (
	// maxQuestions is how many are kept at least.
	maxQuestions = 1024
	// maxID bounds the id of one that is kept. The capsule answers none that is longer.
	maxID = 256
)

// add notes whose a question is.
func (q *questions) add(id json.RawMessage, whose turns.Owner) {
	if len(id) > maxID {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.whose == nil || len(q.whose) >= maxQuestions {
		q.whose, q.older = map[string]turns.Owner{}, q.whose
	}
	q.whose[string(id)] = whose
}

// answers returns whose share a message takes that answers a question; the zero Owner if
// it answers none that is known.
func (q *questions) answers(m message) turns.Owner {
	if m.method != "" || m.id == nil {
		return turns.Owner{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	id := string(m.id)
	whose, ok := q.whose[id]
	if !ok {
		whose = q.older[id]
	}
	delete(q.whose, id)
	delete(q.older, id)
	return whose
}
