package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// questions are the requests of a capsule to clients that have no answer yet.
type questions struct {
	mu     sync.Mutex                     // guards the fields that follow
	open   map[string]*context.CancelFunc // by their ids, as the capsule wrote them
	shares *turns.Shares                  // of 2*maxQuestions requests
	bytes  *turns.Shares                  // of most bytes of params
	most   int64
	closed bool
	wg     sync.WaitGroup
}

// maxQuestions bounds the open requests of a capsule to one caller. It may have twice as many
// to all callers together, so that one caller does not keep it from asking another.
const maxQuestions = 64

// newQuestions returns questions whose params may take roomForLargest bytes in memory.
func newQuestions(maxMessage int64) questions {
	most := roomForLargest(maxMessage)
	return questions{open: map[string]*context.CancelFunc{}, shares: turns.NewShares(2 * maxQuestions), bytes: turns.NewShares(most), most: most}
}

// roomForLargest returns a number of bytes of which a session's share has room for the largest
// message.
func roomForLargest(maxMessage int64) int64 {
	const least, parts = 64 << 20, 4 // of which a session has one; see turns.Shares
	return max(least, parts*maxMessage)
}

// begin asks the client that a request is for, and answers the capsule when the client has
// answered.
func (r *Relay) begin(id json.RawMessage, method string, params json.RawMessage) {
	client, none := r.meant(params)
	if none != nil {
		r.conn.Reply(turns.Owner{}, id, nil, none)
		return
	}
	key := string(id)
	ctx, cancel := context.WithCancel(context.Background())
	size := int64(len(params))
	if why := r.questions.enter(key, client.Owner(), size, &cancel); why != "" {
		cancel()
		r.conn.Reply(client.Owner(), id, nil, refusal("%s", why))
		return
	}
	go func() {
		defer r.questions.wg.Done()
		defer r.questions.shares.Give(client.Owner(), 1)
		defer r.questions.bytes.Give(client.Owner(), size)
		defer recovered.To(r.log, "ask a client what a capsule asks", func(any) {
			if r.questions.finish(key, &cancel) {
				r.conn.Reply(client.Owner(), id, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Orla failed; its log has the details"})
			}
		})
		result, err := client.Ask(ctx, method, peer.Unmarked(params))
		if !r.questions.finish(key, &cancel) {
			return // the capsule has cancelled the request
		}
		if err != nil {
			r.conn.Reply(client.Owner(), id, nil, asWire(err))
			return
		}
		r.conn.Reply(client.Owner(), id, result, nil)
	}()
}

// enter counts a request as open, or returns why it is refused.
func (q *questions) enter(key string, owner turns.Owner, size int64, cancel *context.CancelFunc) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch _, taken := q.open[key]; {
	case taken:
		return "a request with this id is open"
	case q.closed:
		return "the process is being stopped"
	case !q.shares.Try(owner, 1):
		return fmt.Sprintf("too many requests are open: %d to all clients at most, and half of those that are free to one of them; wait for answers", 2*maxQuestions)
	case !q.bytes.Try(owner, size):
		q.shares.Give(owner, 1)
		return fmt.Sprintf("the requests that are open are too large: %d bytes to all clients at most, and no client has more than its share of them; wait for answers", q.most)
	}
	q.open[key] = cancel
	q.wg.Add(1)
	return ""
}

func asWire(err error) *jsonrpc.Error {
	if wire, ok := err.(*jsonrpc.Error); ok { //nolint:errorlint // peer.Client gives it bare
		return wire
	}
	return refusal("the client could not be asked: %v", err)
}

func (q *questions) end(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cancel, ok := q.open[key]; ok {
		(*cancel)()
		delete(q.open, key)
	}
}

// finish frees the id of a request, before it is answered, and reports whether the capsule
// still waits for the answer.
func (q *questions) finish(key string, cancel *context.CancelFunc) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if (*cancel)(); q.open[key] != cancel {
		return false
	}
	delete(q.open, key)
	return true
}

// Cancel ends the request that a notifications/cancelled names.
func (r *Relay) Cancel(params json.RawMessage) {
	var about struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &about) == nil {
		r.questions.end(string(about.ID))
	}
}

// Close ends all requests of the capsule, and refuses new ones.
func (r *Relay) Close() { r.questions.close() }

// close returns the ids of the requests that were open.
func (q *questions) close() (open []string) {
	q.mu.Lock()
	q.closed = true
	for key, cancel := range q.open {
		(*cancel)()
		open = append(open, key)
	}
	clear(q.open)
	q.mu.Unlock()
	q.wg.Wait()
	return open
}
