package conversation

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Table has all conversations: those that wait for their clients, each with a secret state
// that is valid for one request, and those whose peers work. Its methods may be called from any goroutine.
type Table struct {
	opts    Options
	running budget.Counter // of conversations whose peers work; not a WaitGroup, since some may begin during the wait

	mu     sync.Mutex // guards the fields that follow
	all    map[*conversation]bool
	parked map[string]parked
	shares *turns.Shares // of 2*maxParked conversations
	bytes  *turns.Shares // of maxParkedBytes bytes
}

// parked is a conversation that waits for its client.
type parked struct {
	*conversation
	late *time.Timer
}

// Options configures a Table. Log and Room are required.
type Options struct {
	Replica string          // begins the states; "" for none
	Self    json.RawMessage // what answers say of the server
	Room    *turns.Room     // for the bytes of answers
	Log     *slog.Logger
}

// New returns a Table without conversations.
func New(opts Options) *Table {
	return &Table{opts: opts, all: map[*conversation]bool{}, parked: map[string]parked{}, shares: turns.NewShares(2 * maxParked), bytes: turns.NewShares(maxParkedBytes)}
}

// begin starts the work of a new conversation.
func (t *Table) begin(ctx context.Context, r Request, size int64, of results.Asking, do Work) *conversation {
	// The work goes on when the request has been answered with questions.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, release := t.opts.Room.Open(ctx, r.Owner())
	v := &conversation{of: of.Sum(), first: r, size: size, cancel: cancel, release: release, inquiry: inquiry{asked: make(chan struct{}, 1), open: r}, done: make(chan struct{})}
	t.mu.Lock()
	t.all[v] = true
	t.mu.Unlock()
	t.running.Add(1)
	go func() {
		defer t.running.Add(-1)
		defer func() {
			if p := recover(); p != nil {
				t.opts.Log.Error("panic in a request", "method", of.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				v.result, v.err = nil, wire.InternalError()
			}
			cancel(nil)
			t.mu.Lock()
			delete(t.all, v)
			v.ended = true
			t.forgetLocked(v)
			t.mu.Unlock()
			close(v.done)
		}()
		v.result, v.err = do(ctx, v)
	}()
	return v
}

// park keeps a conversation until its client answers, or AnswerTime is over, and returns the
// state with which it goes on. It reports false if there are too many.
func (t *Table) park(v *conversation) (state string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !v.counted && !t.bytes.Try(v.Owner(), v.size) { // until now the bytes counted for the POST, which is about to be answered
		return "", false
	}
	v.counted = true
	if !t.shares.Try(v.Owner(), 1) {
		return "", false
	}
	v.parked = true
	state = results.HeldPrefix + t.opts.Replica + rand.Text()
	t.parked[state] = parked{v, time.AfterFunc(AnswerTime, func() {
		t.mu.Lock()
		_, still := t.parked[state]
		t.unparkLocked(state)
		t.mu.Unlock()
		if still {
			v.giveUp(nil)
		}
	})}
	return state, true
}

// take returns the conversation with a state, for the same request of the same client; nil if
// there is none.
func (t *Table) take(state string, of results.Asking) *conversation {
	if !t.isParked(state) {
		return nil
	}
	sum := of.Sum() // outside of the lock: it hashes all arguments
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.parked[state]
	if !ok || p.of != sum {
		return nil
	}
	t.unparkLocked(state)
	return p.conversation
}

func (t *Table) isParked(state string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.parked[state]
	return ok
}

// giveUp ends a conversation that nobody can go on with. cause is what its call fails with; nil for context.Canceled.
func (v *conversation) giveUp(cause error) {
	v.cancel(cause)
	v.release() // nobody gets its answer
}

// unparkLocked forgets that a conversation waits for its client.
func (t *Table) unparkLocked(state string) {
	p, ok := t.parked[state]
	if !ok {
		return
	}
	p.late.Stop()
	delete(t.parked, state)
	t.shares.Give(p.Owner(), 1)
	p.parked = false
	t.forgetLocked(p.conversation)
}

// forgetLocked stops counting the bytes of a conversation's request, if they are not kept any
// more.
func (t *Table) forgetLocked(v *conversation) {
	if v.counted && v.ended && !v.parked {
		v.counted = false
		t.bytes.Give(v.Owner(), v.size)
	}
}

// EndOf gives up the conversations of some callers that wait for their clients.
func (t *Table) EndOf(is func(caller string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for state, p := range t.parked {
		if p.Owner().Caller != "" && is(p.Owner().Caller) {
			t.unparkLocked(state)
			p.giveUp(nil)
		}
	}
}

// Close gives up all conversations and waits for their end. cause is what their calls fail with.
func (t *Table) Close(cause error) {
	t.mu.Lock()
	for state, p := range t.parked {
		t.unparkLocked(state)
		p.giveUp(cause)
	}
	for v := range t.all {
		v.cancel(cause)
	}
	t.mu.Unlock()
	<-t.running.None()
}
