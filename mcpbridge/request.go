package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/conversation"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Request is a request of a client while it is answered. It is the peer.Client of the peer that
// answers it. After Begin it is not changed, except for the fields that have a lock.
type Request struct {
	bridge *Bridge
	*wire.Message
	from    client.Origin
	newest  bool // it belongs to the stateless era
	says    wire.Declared
	level   string          // in the stateless era: the least level of log messages that the client wants
	token   json.RawMessage // for progress; nil for none
	session *client.Session // nil without one
	to      client.Outlet   // nil if nothing but the answer can be sent to the client

	ctx       context.Context // ends with the request, its cancellation or its client's access
	stop      context.CancelFunc
	cancelled atomic.Bool // by its client
	noted     atomic.Bool // its line in the audit log is for others to write: Bridge.noted, or the request that it goes on with
	made      *loggedCall // is logged when the answer is written; nil for nothing
	release   func()      // gives back the room of a conversation, when the answer is written; nil for none

	asks    asks
	lacks   atomic.Pointer[string] // the capability that a peer needed and the client has not declared; nil for none
	sending sync.RWMutex           // held for reading while something is sent; guards ended
	ended   bool                   // nothing is sent for it any more
}

var _ conversation.Request = (*Request)(nil)

// NewRequest makes a Request of a message, and checks whether its method, era and session allow
// it. An error refuses it.
func (b *Bridge) NewRequest(m *wire.Message, from client.Origin, s *client.Session, to client.Outlet) (*Request, *jsonrpc.Error) {
	r := &Request{bridge: b, Message: m, from: from, session: s, to: to}
	r.from.Request = m.ID
	r.from.As = r.from.Owner()
	how, known := methods[m.Method]
	switch {
	case !known:
		return r, wire.MethodNotFound(m.Method)
	case how.serve == nil:
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "unexpected id for " + wire.Quoted(m.Method)}
	case m.Params.Raw == nil && !how.bare:
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: `missing required "params"`}
	}
	if m.Params.Meta != nil {
		if refused := r.readMeta(); refused != nil {
			return r, refused
		}
	}
	switch {
	case r.newest && how.era == stateful:
		return r, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: wire.Quoted(m.Method) + " is not supported in the new protocol"}
	case !r.newest && how.era == newestOnly:
		return r, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: wire.Quoted(m.Method) + " is only supported in protocol version >= " + wire.FirstStateless}
	case m.Params.Odd:
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	case r.newest:
		r.from.Version = wire.FirstStateless
		return r, nil
	case s == nil:
		return r, nil
	}
	says, opened := s.Declared()
	r.says = says
	if !opened && how.era != stateful {
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "method " + wire.Quoted(m.Method) + " is invalid during session initialization"}
	}
	r.from.Task = r.says.Task
	if r.from.Version == "" {
		r.from.Version = r.says.Version
	}
	return r, nil
}

// readMeta reads the _meta of a request.
func (r *Request) readMeta() *jsonrpc.Error {
	meta := r.Params.Meta
	if string(meta) == "null" {
		return nil
	}
	if !rawjson.IsObject(meta) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if own := client.ParentIn(meta); !own.IsZero() {
		r.from.Parent = own
	}
	if token := rawjson.Get(meta, "progressToken"); len(token) > wire.MaxToken {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a progressToken may have 1 KiB at most"}
	} else if len(token) > 0 && string(token) != "null" {
		r.token = token
	}
	said, refused := wire.ReadMeta(meta)
	if refused != nil || said.Version == "" {
		return refused
	}
	r.newest, r.says, r.level = true, said.Says, said.Level
	return nil
}

// Begin sets the context of a request, which ends with ctx or when Stop is called.
func (r *Request) Begin(ctx context.Context) { r.ctx, r.stop = context.WithCancel(ctx) }

// Stop ends the context of a request.
func (r *Request) Stop() { r.stop() }

// Cancel ends a request because its client has cancelled it.
func (r *Request) Cancel() {
	r.cancelled.Store(true)
	r.stop()
}

// Cancelled reports whether the client has cancelled the request.
func (r *Request) Cancelled() bool { return r.cancelled.Load() }

// Stateless reports whether the request belongs to the stateless era.
func (r *Request) Stateless() bool { return r.newest }

// end stops everything that is sent for the request: it waits for a message that is being sent,
// and ends open questions.
func (r *Request) end() {
	r.stop()
	r.sending.Lock()
	defer r.sending.Unlock()
	r.ended = true
}

// self returns what the answer says about the server: nil except in the stateless era.
func (r *Request) self() json.RawMessage {
	if r.newest {
		return r.bridge.selfJSON
	}
	return nil
}

// Session implements peer.Client.
func (r *Request) Session() string { return r.from.Client() }

// Owner implements peer.Client.
func (r *Request) Owner() turns.Owner { return r.from.As }

// Declared implements peer.Client.
func (r *Request) Declared() peer.Declared {
	return peer.Declared{Capabilities: r.says.Capabilities, LogLevel: r.wants(), Repeats: r.newest}
}

// wants returns the least level of log messages that the client wants now; "" for none.
func (r *Request) wants() string {
	switch {
	case r.newest:
		return r.level
	case r.session != nil:
		return r.session.LoggedFrom()
	}
	return "info" // without a session, no level can be set
}

// Hears implements peer.Client.
func (r *Request) Hears() bool { return r.to != nil && (r.token != nil || r.wants() != "") }

// WantsProgress implements peer.Client.
func (r *Request) WantsProgress() bool { return r.token != nil }

// Notify implements peer.Client. It ignores errors of sending: the client has left.
func (r *Request) Notify(ctx context.Context, method string, params json.RawMessage) {
	switch method {
	case wire.MethodProgress:
		with, ok := wire.Rewritten(params, wire.Member{Key: "progressToken", Value: r.token})
		if !ok || r.token == nil {
			return
		}
		params = with.Join()
	case wire.MethodMessage:
		level := rawjson.String(rawjson.Get(params, "level"))
		wants := r.wants()
		if wants == "" || !slices.Contains(wire.Levels, level) || slices.Index(wire.Levels, level) < slices.Index(wire.Levels, wants) {
			return
		}
	default:
		return
	}
	if release, ok := r.speak(); ok {
		defer release()
		ctx, forget := client.Joined(r.ctx, ctx)
		defer forget()
		_ = r.to.Tell(ctx, wire.Notification(method, params))
	}
}

// speak begins to send something for the request. It reports false if the request is over, or
// nothing can be sent to the client. release must be called when it has been sent.
func (r *Request) speak() (release func(), ok bool) {
	if r.to == nil {
		return nil, false
	}
	r.sending.RLock()
	if r.ended {
		r.sending.RUnlock()
		return nil, false
	}
	return r.sending.RUnlock, true
}

// Ask implements peer.Client.
func (r *Request) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := r.Refuses(method); err != nil {
		return nil, err
	}
	if r.newest {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the client speaks a version of the protocol in which " + method + " cannot be asked of it here"}
	}
	if r.session == nil || r.to == nil {
		return nil, client.ErrCannotBeAsked
	}
	release, ok := r.speak()
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client's request has been answered; nothing can be asked any more"}
	}
	defer release()
	ctx, forget := client.Joined(r.ctx, ctx)
	defer forget()
	defer r.Asking()()
	return r.session.Questions.Ask(ctx, r.bridge.log, r.to, method, params)
}

// Refuses returns why the client cannot be asked something; nil if it can.
func (r *Request) Refuses(method string) error {
	lacks := map[string]string{wire.MethodSample: "sampling", wire.MethodElicit: "elicitation", wire.MethodRoots: "roots"}[method]
	switch {
	case lacks == "":
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not a request that clients accept"}
	case !r.says.Takes(method):
		r.lacks.Store(&lacks)
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the client does not take " + method + ": it has not declared " + lacks}
	}
	return nil
}

// missing returns the error of a failed request whose peer needed a capability that the client
// has not declared. In the stateless era the client MUST be told which (2026-07-28,
// basic/lifecycle). It returns nil if there is none.
func (r *Request) missing() *jsonrpc.Error {
	lacks := r.lacks.Load()
	if lacks == nil || !r.newest {
		return nil
	}
	data := rawjson.Must(map[string]any{"requiredCapabilities": map[string]any{*lacks: struct{}{}}})
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this needs a client that has declared " + *lacks, Data: data}
}

// rpcError returns the error that a client gets for err. The text of an unexpected error goes
// to the log only.
func (b *Bridge) rpcError(r *Request, err error) *jsonrpc.Error {
	if given, ok := errors.AsType[*jsonrpc.Error](err); ok && given.Code != 0 {
		if given.Data != nil && !rawjson.Valid(given.Data) {
			return &jsonrpc.Error{Code: given.Code, Message: given.Message}
		}
		return given
	}
	if r.ctx.Err() != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request was cancelled"}
	}
	b.log.Error("a request failed", "method", r.Method, "err", err)
	return wire.InternalError()
}
