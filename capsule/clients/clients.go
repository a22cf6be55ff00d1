// Package clients passes the notifications and requests of a capsule to clients: progress
// and log messages go to the client that made the call, and so do requests of the capsule
// (SPEC D6, D8).
//
// A process serves many clients, and before 2026-07-28 MCP does not say which of them a log
// message or a request on a pipe is for. A message may name it, by a progress token or by the
// id of a request (peer.MetaCall). Any other message goes to the client, if the process has
// served only one. If it has served several, the message goes to nobody: it may be about a
// call of any of them, even one that has ended (SPEC N2, docs/decisions/0030).
package clients

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// Relay passes on the notifications and requests of one connection. Its methods may be called
// from any goroutine.
type Relay struct {
	conn      *rpc.Conn
	tool      string // the capsule's name
	log       *slog.Logger
	questions questions
}

// New returns a Relay for a connection, on which messages have maxMessage bytes at most.
func New(conn *rpc.Conn, tool string, maxMessage int64, log *slog.Logger) *Relay {
	return &Relay{conn: conn, tool: tool, log: log, questions: newQuestions(maxMessage)}
}

// token reads the progress token of params, or of their _meta; 0 if there is none.
func token(params json.RawMessage) (id int64) {
	if !rawjson.IsObject(params) {
		return 0
	}
	read := func(key []byte, value json.RawMessage) bool {
		if string(key) == "progressToken" {
			id, _ = strconv.ParseInt(string(value), 10, 64)
		}
		return true
	}
	rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		if string(key) == "_meta" && rawjson.IsObject(value) {
			rawjson.Members(value, read)
		}
		return read(key, value)
	})
	return id
}

// Progress passes notifications/progress to the call that it belongs to.
func (r *Relay) Progress(params json.RawMessage) {
	if id := token(params); wantsProgress(r.conn.About(id)) {
		r.conn.Note(id, "notifications/progress", params)
	}
}

func wantsProgress(about any) bool {
	client, ok := about.(peer.Client)
	return ok && client.WantsProgress()
}

// Message passes notifications/message to the client that it is for.
func (r *Relay) Message(params json.RawMessage) {
	r.log.Debug("a capsule's log message", "tool", r.tool, "params", string(params))
	if id := cmp.Or(peer.About(params), token(params)); id != 0 {
		if _, ok := r.conn.About(id).(peer.Client); ok {
			r.conn.Note(id, "notifications/message", peer.Unmarked(params))
		}
		return
	}
	if id, _, shared := r.conn.Sole(); !shared {
		r.conn.Note(id, "notifications/message", params)
	}
}

// codeUnattributed is the code of the error for a request of a capsule of which it is not
// known which client it is for.
const codeUnattributed = jsonrpc.CodeInvalidRequest

// meant returns the client that a request of the capsule is for. A progress token in its
// params was chosen by the capsule, and so does not name a client.
func (r *Relay) meant(params json.RawMessage) (peer.Client, *jsonrpc.Error) {
	if id := peer.About(params); id != 0 {
		client, ok := r.conn.About(id).(peer.Client)
		if !ok {
			return nil, unattributed("the request %d, which %q in _meta names, is not one that a client waits for", id, peer.MetaCall)
		}
		return client, nil
	}
	_, about, shared := r.conn.Sole()
	client, ok := about.(peer.Client)
	switch {
	case shared:
		return nil, unattributed("this process has served several clients, and the request does not say which of them it is for: "+
			"name the id of the client's request as %q in _meta, or serve MCP 2026-07-28", peer.MetaCall)
	case !ok:
		return nil, unattributed("no client that could be asked is waiting for %s", r.tool)
	}
	return client, nil
}

func unattributed(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeUnattributed, Message: fmt.Sprintf(format, args...)}
}

func refusal(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(format, args...)}
}

// Refuse answers all requests of the capsule that are open with an error, and refuses new ones: Orla is about to
// execute another program, and the capsule goes on.
func (r *Relay) Refuse() {
	for _, key := range r.questions.close() {
		r.conn.Reply(turns.Owner{}, json.RawMessage(key), nil, refusal("Orla is being upgraded; ask again"))
	}
}

// Asked answers a request of the capsule. It asks a client first, if the request is for one.
func (r *Relay) Asked(id json.RawMessage, method string, params json.RawMessage) {
	switch method {
	case "ping":
		r.conn.Reply(turns.Owner{}, id, json.RawMessage("{}"), nil)
	case "sampling/createMessage", "elicitation/create", "roots/list":
		r.begin(id, method, params)
	default:
		const enough = 64
		r.conn.Reply(turns.Owner{}, id, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method[:min(len(method), enough)])})
	}
}
