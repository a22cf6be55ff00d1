package remote

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Limits of messages to the server that have no answer, which are mostly answers to its own
// requests. A server that sends requests faster than it reads the answers must not make Orla keep
// all of them, or open a connection for each. The limits are for one caller; all callers together
// have twice as much.
const (
	maxTells  = 16   // being sent
	maxUntold = 1024 // being sent or waiting
	// leastUntoldBytes is the least number of bytes for waiting messages.
	leastUntoldBytes = 64 << 20
)

// maxAllTells bounds the messages without an answer that are being sent to all servers at once.
const maxAllTells = 64

// allTells are they, by caller; those for no caller count for the host of their server.
var allTells = turns.NewShares(maxAllTells)

// allAsks slows down the questions of all servers together. One costs as much as askLines other messages, since
// its answer is a request: one server may have many sessions.
var allAsks pace.Shared

const (
	askLines = 40
	maxAsks  = pace.MaxLines / askLines // questions per second
)

// slow counts the questions in a message of the server, and waits if all servers have asked too many.
func (s *session) slow(done <-chan struct{}, questions int) {
	for range questions {
		s.asks.Wait(done, askLines, 0)
	}
}

// questionsIn returns how many requests a message of the server has. raw is valid JSON.
func questionsIn(raw []byte) (n int) {
	count := func(one json.RawMessage) bool {
		if rawjson.IsObject(one) {
			if m, _ := rawjson.ReadMessage(one); m.Method != nil && m.ID != nil {
				n++
			}
		}
		return true
	}
	if rawjson.IsObject(raw) {
		count(raw)
	} else {
		rawjson.Elements(raw, count)
	}
	return n
}

// later sends a message without blocking the caller: when there is room, and after the channel after
// is closed. ctx bounds the wait, and last the sending.
func (s *session) later(ctx, last context.Context, m message, after <-chan struct{}) {
	whose := s.asked.answers(m)
	if !s.untold.Try(whose, 1) {
		s.say("%d messages already wait to be sent to the server; dropping %s", s.untold.Taken(), m.called())
		return
	}
	size := int64(len(m.text))
	if !s.untoldBytes.Try(whose, size) {
		s.untold.Give(whose, 1)
		s.say("%d bytes already wait to be sent to the server; dropping %s", s.untoldBytes.Taken(), m.called())
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
		among := whose
		if among == (turns.Owner{}) {
			among = s.owner
		}
		if s.allTells.Take(ctx, among, 1) != nil {
			return
		}
		defer s.allTells.Give(among, 1)
		s.tell(last, m)
	})
}

// questions are the server's requests on the streams of answers. The answer to a request counts
// towards the same caller's share.
type questions struct {
	mu    sync.Mutex // guards the fields that follow
	whose map[string]turns.Owner
	older map[string]turns.Owner // the previous generation; requests that the server cancels are never removed otherwise
}

const (
	// maxQuestions is the least number of requests that are kept.
	maxQuestions = 1024
	// maxID bounds the id of a request that is kept. The capsule does not answer one with a longer id.
	maxID = 256
)

// add records whose share a request counts towards.
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

// answers returns whose share a message counts towards if it answers a known request; else the zero
// Owner.
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
