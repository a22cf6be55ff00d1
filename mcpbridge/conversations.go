package mcpbridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// conversations are all conversations: those that wait for their clients, by a secret state
// that is valid for one request, and those whose peers work.
type conversations struct {
	replica string         // begins the states; see Shared
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

// begin starts the work of a new conversation.
func (c *conversations) begin(ctx context.Context, b *Bridge, r *Request, of results.Asking, do work) *conversation {
	// The work goes on when the request has been answered with questions.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, release := b.room.Open(ctx, r.Owner())
	v := &conversation{of: of.Sum(), first: r, cancel: cancel, release: release, inquiry: inquiry{asked: make(chan struct{}, 1), open: r}, done: make(chan struct{})}
	c.mu.Lock()
	if c.all == nil {
		c.all, c.parked, c.shares, c.bytes = map[*conversation]bool{}, map[string]parked{}, turns.NewShares(2*maxParked), turns.NewShares(maxParkedBytes)
	}
	c.all[v] = true
	c.mu.Unlock()
	c.running.Add(1)
	go func() {
		defer c.running.Add(-1)
		defer func() {
			if p := recover(); p != nil {
				b.log.Error("panic in a request", "method", of.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				v.result, v.err = nil, wire.InternalError()
			}
			cancel(nil)
			c.mu.Lock()
			delete(c.all, v)
			v.ended = true
			c.forgetLocked(v)
			c.mu.Unlock()
			close(v.done)
		}()
		v.result, v.err = do(ctx, v)
	}()
	return v
}

// park keeps a conversation until its client answers, or AnswerTime is over, and returns the
// state with which it goes on. It reports false if there are too many.
func (c *conversations) park(v *conversation) (state string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.counted && !c.bytes.Try(v.Owner(), v.size()) { // until now the bytes counted for the POST, which is about to be answered
		return "", false
	}
	v.counted = true
	if !c.shares.Try(v.Owner(), 1) {
		return "", false
	}
	v.parked = true
	state = results.HeldPrefix + c.replica + rand.Text()
	c.parked[state] = parked{v, time.AfterFunc(AnswerTime, func() {
		c.mu.Lock()
		_, still := c.parked[state]
		c.unparkLocked(state)
		c.mu.Unlock()
		if still {
			v.giveUp()
		}
	})}
	return state, true
}

// take returns the conversation with a state, for the same request of the same client; nil if
// there is none.
func (c *conversations) take(state string, of results.Asking) *conversation {
	if !c.isParked(state) {
		return nil
	}
	sum := of.Sum() // outside of the lock: it hashes all arguments
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.parked[state]
	if !ok || p.of != sum {
		return nil
	}
	c.unparkLocked(state)
	return p.conversation
}

func (c *conversations) isParked(state string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.parked[state]
	return ok
}

// giveUp ends a conversation that nobody can go on with.
func (v *conversation) giveUp() {
	v.cancel(nil)
	v.release() // nobody gets its answer
}

// unparkLocked forgets that a conversation waits for its client.
func (c *conversations) unparkLocked(state string) {
	p, ok := c.parked[state]
	if !ok {
		return
	}
	p.late.Stop()
	delete(c.parked, state)
	c.shares.Give(p.Owner(), 1)
	p.parked = false
	c.forgetLocked(p.conversation)
}

// forgetLocked stops counting the bytes of a conversation's request, if they are not kept any
// more.
func (c *conversations) forgetLocked(v *conversation) {
	if v.counted && v.ended && !v.parked {
		v.counted = false
		c.bytes.Give(v.Owner(), v.size())
	}
}

// endOf gives up the conversations of some callers that wait for their clients.
func (c *conversations) endOf(is func(caller string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for state, p := range c.parked {
		if p.Owner().Caller != "" && is(p.Owner().Caller) {
			c.unparkLocked(state)
			p.giveUp()
		}
	}
}

// close gives up all conversations and waits for their end. cause is what their calls fail with.
func (c *conversations) close(cause error) {
	c.mu.Lock()
	for _, p := range c.parked {
		p.late.Stop()
	}
	clear(c.parked)
	for v := range c.all {
		v.cancel(cause)
	}
	c.mu.Unlock()
	<-c.running.None()
}
