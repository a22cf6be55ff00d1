// Package conversation answers the requests of the stateless era whose peers ask their clients something.
//
// The server cannot send requests in that era. So the client's request is answered with the
// questions (input_required), the peer keeps waiting, and the client repeats the request with
// the answers.
package conversation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// together is how long a question waits for further questions of the same peer, so that
	// the client gets questions that belong together in one answer.
	together = 20 * time.Millisecond
	// AnswerTime is how long a client of the stateless era has for its answers before its call is given up. Other calls
	// end by their timeouts as well.
	AnswerTime = 5 * time.Minute
	// maxParked bounds the calls of one caller that wait for the client's answers. All callers
	// together may have twice as many.
	maxParked = 256
	// maxParkedBytes bounds the bytes of the requests of all callers that wait, which stay in memory. The request
	// with the client's answers counts separately.
	maxParkedBytes = 128 << 20
)

// tooMany is what a question fails with that cannot be asked, since calls and bytes that wait are bounded.
var tooMany = fmt.Sprintf("too many calls wait for their clients' answers: %d at most, with requests of %d MiB in all, and one caller has half of what is free; answer the questions of other calls and try again", 2*maxParked, maxParkedBytes>>20)

// Request is a request of a client while it is answered.
type Request interface {
	peer.Client
	// Refuses returns why the client cannot be asked something; nil if it can.
	Refuses(method string) error
	// Asking counts a question until answered is called.
	Asking() (answered func())
}

// Work makes a request of a peer for a client.
type Work func(ctx context.Context, client peer.Client) (wire.Parts, *jsonrpc.Error)

// conversation is a request whose peer may ask the client something. It is the peer.Client for as long as the peer works,
// across all requests of the client that belong to it.
type conversation struct {
	of      [sha256.Size]byte       // the request; see results.Asking.Sum
	first   Request                 // the first one, with the capabilities of the client
	size    int64                   // bytes of it that stay in memory
	cancel  context.CancelCauseFunc // ends the peer's work
	release func()                  // gives back the room for answers that the work holds
	inquiry                         // the questions of the peer

	done   chan struct{} // closed when the fields that follow are set
	result wire.Parts
	err    *jsonrpc.Error

	// What follows is guarded by Table.mu.
	counted bool // the bytes of the request are counted in Table.bytes
	parked  bool // it waits for the client's answers
	ended   bool // the peer's work has ended
}

var _ peer.Client = (*conversation)(nil)

// Session implements peer.Client.
func (v *conversation) Session() string { return v.first.Session() }

// Owner implements peer.Client.
func (v *conversation) Owner() turns.Owner { return v.first.Owner() }

// Declared implements peer.Client.
func (v *conversation) Declared() peer.Declared { return v.first.Declared() }

// Hears implements peer.Client.
func (v *conversation) Hears() bool { return true }

// WantsProgress implements peer.Client.
func (v *conversation) WantsProgress() bool {
	c := v.current()
	return c != nil && c.WantsProgress()
}

// Notify implements peer.Client. Between two requests of the client nothing can be sent.
func (v *conversation) Notify(ctx context.Context, method string, params json.RawMessage) {
	if c := v.current(); c != nil {
		c.Notify(ctx, method, params)
	}
}

// Ask implements peer.Client.
func (v *conversation) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := v.first.Refuses(method); err != nil {
		return nil, err
	}
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	defer v.first.Asking()()
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
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: tooMany}
		}
		return raw, nil
	case <-ctx.Done():
	case <-v.done:
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: method + " was given up before the client answered"}
}

// gathered waits until no further question has come for a moment, and returns the questions.
// It returns nil if there are none, or the work or ctx has ended.
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

// Answer does the work for a request of a client that can be asked. The result may be questions to the client. release gives
// back the room that the work holds, when the answer is written; nil for none.
func (t *Table) Answer(ctx context.Context, r Request, params wire.Params, of results.Asking, do Work) (_ wire.Parts, release func(), _ *jsonrpc.Error) {
	state, answers := answersIn(params)
	var v *conversation
	if !strings.HasPrefix(state, results.HeldPrefix) { // a peer's own state goes to the peer
		v = t.begin(ctx, r, int64(len(params.Raw)), of, do)
	} else if v = t.take(state, of); v == nil {
		return nil, nil, results.ErrUnknownState
	}
	v.attach(r)
	defer v.attach(nil)
	v.reply(answers)
	for {
		if ask := v.gathered(ctx); ask != nil {
			if state, ok := t.park(v); ok {
				return wire.Parts{
					[]byte(`{"resultType":"input_required","_meta":{"` + mcp.MetaKeyServerInfo + `":`), t.opts.Self,
					[]byte(`},"requestState":`), rawjson.Quote(state), []byte(`,"inputRequests":`), ask, []byte("}"),
				}, nil, nil
			}
			v.refuseAll()
		}
		select {
		case <-v.done:
			return v.result, v.release, v.err
		case <-v.asked:
		case <-ctx.Done():
			v.cancel(nil)
			<-v.done
			v.release()
			return v.result, nil, v.err
		}
	}
}

// answersIn returns the requestState and the answers in the params of a request. It ignores
// answers that are too many: each takes ten times its bytes in memory.
func answersIn(p wire.Params) (state string, answers map[string]json.RawMessage) {
	state, _ = wire.TextOf(p.State)
	if p.Responses != nil && wire.FewMembers(p.Responses) {
		_ = json.Unmarshal(p.Responses, &answers) // anything but an object has no answers
	}
	return state, answers
}
