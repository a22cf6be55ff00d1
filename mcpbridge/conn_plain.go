package mcpbridge

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/recovered"
)

// answerPlain answers a message without the SDK if it is a plain call in a
// session, or from a client, that the SDK has found in order.
func (c *conn) answerPlain(l line) bool {
	p, ok := parsePlain(l.data)
	if !ok {
		return false
	}
	var who client
	if p.meta == nil {
		c.mu.Lock()
		who, ok = c.client, c.opened
		c.mu.Unlock()
	} else {
		who, ok = c.bridge.metas.find(c.line.Caller, p.meta)
		ok = ok && c.newest
	}
	if _, answerable := c.bridge.answerable(&p, who, c.id); !answerable {
		return false
	}
	id, usual := decodedID(p.id)
	if !ok || !usual {
		return false
	}
	if !c.enter() {
		return false // it is over; who reads finds out
	}
	ctx, cancel := context.WithCancel(c.ctx)
	if !c.expect(id, pending{cancel: cancel, held: l.held}) {
		cancel()
		c.plain.Done()
		c.lines.Done()
		l.held.end()
		c.complain(p.id, jsonrpc.CodeInvalidRequest, "a request with this id is being answered")
		return true
	}
	c.run(func() {
		defer c.lines.Done()
		defer recovered.To(c.log, "write down a call", nil)
		made := c.plainly(ctx, cancel, p, id, who)
		c.bridge.record(ctx, made) // the client need not wait for the log
	})
	return true
}

// plainly makes a plain call and answers it. A panic ends the connection: nobody
// knows what of the answer has been written.
func (c *conn) plainly(ctx context.Context, cancel func(), p plainCall, id jsonrpc.ID, who client) (made *call) {
	from := callerOf(c.extra)
	from.session, from.version, from.request, from.task = c.id, who.version, p.id, who.task
	ctx, letGo := c.bridge.room.Hold(ctx, c.line)
	working := true
	end := func() {
		if working {
			working = false
			cancel()
			c.plain.Done()
		}
	}
	defer end()
	defer recovered.To(c.log, "answer a call", func(any) {
		letGo()
		c.hangUp()
	})
	response, _, made := c.bridge.direct(ctx, p, from)
	if ctx.Err() != nil {
		// "Receivers of cancellation notifications SHOULD … not send a
		// response" (MCP, Cancellation). A client that left needs none.
		response = nil
	}
	end() // the write may hang; see ServeStdio
	c.answerPlainly(id, response, letGo)
	return made
}

// enter counts a plain call in, unless the connection is over.
func (c *conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.plain.Add(1)
	c.lines.Add(1)
	return true
}

// awaitPlain lets no plain call begin any more, and waits for those that have.
func (c *conn) awaitPlain() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.plain.Wait()
}

// answerPlainly ends a plain call with its answer; nil for none. letGo is called
// when nothing of it is to be written any more.
func (c *conn) answerPlainly(id jsonrpc.ID, response parts, letGo func()) {
	if c.out != nil {
		c.answerSoon(id, response, letGo)
		return
	}
	defer letGo()
	var answer json.RawMessage
	if response != nil {
		answer = response.join()
	}
	if err := c.answer(id, answer); err != nil {
		c.log.Debug("answer a call", "err", err)
	}
}

// awaitLog waits until the calls that are over are in the log, or for as long
// as last answers may take: the write before it may hang.
func (c *conn) awaitLog() {
	logged := make(chan struct{})
	go func() {
		c.lines.Wait()
		close(logged)
	}()
	timer := time.NewTimer(lastAnswers)
	defer timer.Stop()
	select {
	case <-logged:
	case <-timer.C:
	}
}

// maxIdle bounds the goroutines that wait for a job.
const maxIdle = 64

// run does a job in a goroutine: one that is done with another, if there is one,
// since its stack need not grow again.
func (c *conn) run(job func()) {
	select {
	case c.jobs <- job:
	default:
		go c.work(job)
	}
}

// work does a job, and then others, for as long as the connection lives.
func (c *conn) work(job func()) {
	for {
		job()
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		select {
		case job = <-c.jobs:
			c.idle.Add(-1)
		case <-c.done:
			return
		}
	}
}

// decodedID is an id as the SDK holds it.
func decodedID(raw json.RawMessage) (jsonrpc.ID, bool) {
	var v any
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil { // as a rule
		v = float64(n)
	} else if json.Unmarshal(raw, &v) != nil {
		return jsonrpc.ID{}, false
	}
	id, err := jsonrpc.MakeID(v)
	return id, err == nil
}

// cancelPlain ends the plain call that a notification cancels, and reports
// whether it was one.
func (c *conn) cancelPlain(raw json.RawMessage) bool {
	id, ok := decodedID(json.RawMessage(cancelledID(raw)))
	if !ok {
		return false
	}
	c.mu.Lock()
	p := c.awaiting[id]
	c.mu.Unlock()
	if p.cancel == nil {
		return false
	}
	p.cancel()
	return true
}

// learn notes what the SDK's answer without an error says: that the session
// has begun, or that a client of the stateless era is in order.
func (c *conn) learn(id jsonrpc.ID) {
	c.mu.Lock()
	p := c.awaiting[id]
	if p.opens {
		c.opened = true
		c.client = p.client
		c.client.task = sessionTask(c.id)
	}
	c.mu.Unlock()
	if p.meta != nil {
		c.bridge.metas.learn(c.line.Caller, p.meta)
	}
}
