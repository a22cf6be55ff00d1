package mcpbridge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// together is how long a question waits for others of its peer, so that a client
	// is asked at once what is asked at once.
	together = 20 * time.Millisecond
	// holdTime is how long a client has for its answers before its call is given up.
	holdTime = 5 * time.Minute
	// maxHeld bounds the calls of one caller that wait for answers at one time. All
	// callers may have twice as many.
	maxHeld = 256
	// maxHeldBytes bounds their requests, which stay in memory. The answers come with the
	// whole request again, which counts by itself.
	maxHeldBytes = 128 << 20
)

// conversation is a request of the stateless era whose peer may ask the client
// something. No request can be made of the client there, so the client's own is
// answered with the questions (input_required), the peer is kept waiting, and
// the client asks again, with the answers.
//
// It is the peer's Client for as long as the peer works, whichever request of
// the client's is open meanwhile.
type conversation struct {
	of      [sha256.Size]byte // the request; see asking
	session string
	line    turns.Line
	says    peer.Declared
	cancel  context.CancelFunc // ends the peer's work
	release func()             // of the room for answers that the work holds
	first   *Request           // which knows what its client takes
	asked   chan struct{}      // holds a token when there is a new question
	done    chan struct{}      // closed when the fields that follow are set

	result wire.Parts
	err    *jsonrpc.Error

	size    int64 // bytes of the request, which stay in memory
	counted bool  // they are, in held.bytes; guarded by held.mu, as are the next fields
	parked  bool  // the client is thinking
	ended   bool  // the work has

	mu      sync.Mutex // guards the fields that follow
	open    *Request   // the request that is being answered; nil while the peer is kept waiting
	pending []*question
	given   map[string]json.RawMessage // by the open request, for what has not been asked yet
	serial  int
}

var _ peer.Client = (*conversation)(nil)

// question waits for the client's answer.
type question struct {
	id     string
	method string
	params json.RawMessage
	answer chan json.RawMessage // has room for the one answer
}

// Session implements peer.Client.
func (v *conversation) Session() string { return v.session }

// Line implements peer.Client.
func (v *conversation) Line() turns.Line { return v.line }

// Declared implements peer.Client.
func (v *conversation) Declared() peer.Declared { return v.says }

// Hears implements peer.Client.
func (v *conversation) Hears() bool { return true }

// WantsProgress implements peer.Client.
func (v *conversation) WantsProgress() bool {
	c := v.current()
	return c != nil && c.WantsProgress()
}

// Notify implements peer.Client. While the client is thinking there is no way
// to it.
func (v *conversation) Notify(ctx context.Context, method string, params json.RawMessage) {
	if c := v.current(); c != nil {
		c.Notify(ctx, method, params)
	}
}

func (v *conversation) current() *Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// Ask implements peer.Client.
func (v *conversation) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := v.first.refuses(method); err != nil {
		return nil, err
	}
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	q := &question{method: method, params: params, answer: make(chan json.RawMessage, 1)}
	if given := v.put(q, peer.NameOf(params)); given != nil {
		return given, nil
	}
	select {
	case v.asked <- struct{}{}:
	default:
	}
	defer v.drop(q)
	select {
	case raw := <-q.answer:
		if raw == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("too many calls wait for their clients' answers: %d at most, and one caller has half of what is free; answer the questions of other calls and try again", 2*maxHeld)}
		}
		return raw, nil
	case <-ctx.Done():
	case <-v.done:
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: method + " was given up before the client answered"}
}

// put makes q a question to be asked, by a name if it has one that is not in use.
// If the client has answered it already, that is returned instead.
func (v *conversation) put(q *question, name string) (given json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.serial++
	q.id = fmt.Sprint("question-", v.serial)
	if name != "" && !slices.ContainsFunc(v.pending, func(p *question) bool { return p.id == name }) {
		q.id = name
		if given = v.given[name]; given != nil {
			delete(v.given, name)
			return given
		}
	}
	v.pending = append(v.pending, q)
	return nil
}

func (v *conversation) drop(q *question) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = slices.DeleteFunc(v.pending, func(p *question) bool { return p == q })
}

// reply hands answers to those who asked, and keeps the others for questions that
// come while the request is open. A question without one is asked again, as is
// one whose answer is none: any result of a client's is an object.
func (v *conversation) reply(answers map[string]json.RawMessage) {
	maps.DeleteFunc(answers, func(_ string, raw json.RawMessage) bool { return !rawjson.IsObject(raw) })
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = slices.DeleteFunc(v.pending, func(q *question) bool {
		raw, ok := answers[q.id]
		if ok {
			q.answer <- raw
			delete(answers, q.id)
		}
		return ok
	})
	v.given = answers
}

// questions are what is to be asked now, as inputRequests; nil if nothing is.
func (v *conversation) questions() json.RawMessage {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pending) == 0 {
		return nil
	}
	out := wire.Parts{}
	before := []byte("{")
	for _, q := range v.pending {
		out = append(out, before, rawjson.Quote(q.id), []byte(`:{"method":`), rawjson.Quote(q.method), []byte(`,"params":`), q.params, []byte("}"))
		before = []byte(",")
	}
	return append(out, []byte("}")).Join()
}

// gathered are the questions, if there are any, once no more have come for a
// moment; nil also when there is nobody left to ask or to answer.
func (v *conversation) gathered(ctx context.Context) json.RawMessage {
	if v.questions() == nil {
		return nil
	}
	calm := time.NewTimer(together)
	defer calm.Stop()
	for {
		select {
		case <-v.asked:
			calm.Reset(together)
		case <-calm.C:
			return v.questions()
		case <-v.done:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// refuseAll gives the questions no answer.
func (v *conversation) refuseAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, q := range v.pending {
		q.answer <- nil
	}
	v.pending = nil
}

// attach makes r the request that is being answered; nil for none.
func (v *conversation) attach(r *Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open, v.given = r, nil
}

// work is what a peer does for a client.
type work func(ctx context.Context, client peer.Client) (wire.Parts, *jsonrpc.Error)

// answersLater reports whether the client of a request can be asked something only with
// the answer to it.
func (r *Request) answersLater() bool { return r.newest && r.says.Askable() }

// converse does the work for the client of a request that answers later. Its result may be
// questions to the client.
func (b *Bridge) converse(ctx context.Context, r *Request, of results.Asking, do work) (wire.Parts, *jsonrpc.Error) {
	state, answers := answersIn(r.Params)
	var v *conversation
	if !strings.HasPrefix(state, results.HeldPrefix) { // a state that is the peer's goes to the peer
		v = b.held.begin(ctx, b, r, of, do)
	} else if v = b.held.take(state, of); v == nil {
		return nil, results.ErrUnknownState
	}
	v.attach(r)
	defer v.attach(nil)
	v.reply(answers)
	for {
		if ask := v.gathered(ctx); ask != nil {
			if state, ok := b.held.park(v); ok {
				return wire.Parts{
					[]byte(`{"resultType":"input_required","_meta":{"` + mcp.MetaKeyServerInfo + `":`), b.selfJSON,
					[]byte(`},"requestState":`), rawjson.Quote(state), []byte(`,"inputRequests":`), ask, []byte("}"),
				}, nil
			}
			v.refuseAll()
		}
		select {
		case <-v.done:
			r.release = v.release
			return v.result, v.err
		case <-v.asked:
		case <-ctx.Done():
			v.cancel()
			<-v.done
			v.release()
			return v.result, v.err
		}
	}
}

// answersIn returns what a client answers in the params of a request, and to what. More
// answers than anybody has questions are none: each takes ten times its bytes.
func answersIn(p wire.Params) (state string, answers map[string]json.RawMessage) {
	state, _ = wire.TextOf(p.State)
	if p.Responses != nil && wire.FewMembers(p.Responses) {
		_ = json.Unmarshal(p.Responses, &answers) // what is no object answers nothing
	}
	return state, answers
}

// inputIn is what a client gives to a peer that required more in the stateless era. An
// error says that the peer's state was not given to this client for this request.
func (b *Bridge) inputIn(r *Request, of results.Asking) (in peer.Input, refused *jsonrpc.Error) {
	in.Responses, in.State = r.Params.Responses, r.Params.State
	if in.State == nil {
		return in, nil
	}
	given, ok := wire.TextOf(in.State)
	if !ok {
		return peer.Input{}, results.ErrUnknownState
	}
	if strings.HasPrefix(given, results.HeldPrefix) {
		return peer.Input{}, nil
	}
	state, ok := b.states.Check(of, given)
	if !ok {
		return peer.Input{}, results.ErrUnknownState
	}
	in.State = rawjson.Quote(state)
	return in, nil
}

// held are the conversations whose clients are thinking, by an unguessable
// state that is good for one request.
type held struct {
	running budget.Counter // the work of all conversations; some may begin while others are waited for

	mu     sync.Mutex // guards the fields that follow
	all    map[*conversation]bool
	parked map[string]parked
	shares *turns.Shares // of 2*maxHeld
	bytes  *turns.Shares // of maxHeldBytes
}

// parked is a conversation that waits for its client.
type parked struct {
	*conversation
	late *time.Timer
}

// begin starts the work of a new conversation.
func (h *held) begin(ctx context.Context, b *Bridge, r *Request, of results.Asking, do work) *conversation {
	// The work goes on when the request has been answered with questions.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ctx, release := b.room.Hold(ctx, r.line)
	v := &conversation{of: of.Sum(), session: r.Session(), line: r.line, says: r.Declared(), first: r, cancel: cancel, release: release, asked: make(chan struct{}, 1), done: make(chan struct{}), open: r, size: int64(len(r.Params.Raw))}
	h.mu.Lock()
	if h.all == nil {
		h.all, h.parked, h.shares, h.bytes = map[*conversation]bool{}, map[string]parked{}, turns.NewShares(2*maxHeld), turns.NewShares(maxHeldBytes)
	}
	h.all[v] = true
	h.mu.Unlock()
	h.running.Add(1)
	go func() {
		defer h.running.Add(-1)
		defer func() {
			if p := recover(); p != nil {
				b.log.Error("panic in a request", "method", of.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				v.result, v.err = nil, wire.InternalError()
			}
			cancel()
			h.mu.Lock()
			delete(h.all, v)
			v.ended = true
			h.forgetLocked(v)
			h.mu.Unlock()
			close(v.done)
		}()
		v.result, v.err = do(ctx, v)
	}()
	return v
}

// park keeps a conversation for as long as its client may think, and returns the
// state to go on with. It reports false when there are too many.
func (h *held) park(v *conversation) (state string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !v.counted && !h.bytes.Try(v.line, v.size) { // until now they count for the POST, which is about to be answered
		return "", false
	}
	v.counted = true
	if !h.shares.Try(v.line, 1) {
		return "", false
	}
	v.parked = true
	state = results.HeldPrefix + rand.Text()
	h.parked[state] = parked{v, time.AfterFunc(holdTime, func() {
		h.mu.Lock()
		_, still := h.parked[state]
		h.unparkLocked(state)
		h.mu.Unlock()
		if still {
			v.giveUp()
		}
	})}
	return state, true
}

// take returns the conversation that its owner goes on with; nil if there is none.
func (h *held) take(state string, of results.Asking) *conversation {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.parked[state]
	if !ok || p.of != of.Sum() {
		return nil
	}
	h.unparkLocked(state)
	return p.conversation
}

// giveUp ends a conversation that nobody can go on with.
func (v *conversation) giveUp() {
	v.cancel()
	v.release() // what it answers nobody gets
}

// unparkLocked forgets that a conversation waits for its client.
func (h *held) unparkLocked(state string) {
	p, ok := h.parked[state]
	if !ok {
		return
	}
	p.late.Stop()
	delete(h.parked, state)
	h.shares.Give(p.line, 1)
	p.parked = false
	h.forgetLocked(p.conversation)
}

// forgetLocked counts the request of a conversation no more, if nothing holds it.
func (h *held) forgetLocked(v *conversation) {
	if v.counted && v.ended && !v.parked {
		v.counted = false
		h.bytes.Give(v.line, v.size)
	}
}

// endOf gives up the conversations of some callers that wait for their clients.
func (h *held) endOf(is func(caller string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for state, p := range h.parked {
		if p.line.Caller != "" && is(p.line.Caller) {
			h.unparkLocked(state)
			p.giveUp()
		}
	}
}

// close gives up all conversations and waits for their end.
func (h *held) close() {
	h.mu.Lock()
	for _, p := range h.parked {
		p.late.Stop()
	}
	clear(h.parked)
	for v := range h.all {
		v.cancel()
	}
	h.mu.Unlock()
	<-h.running.None()
}
