package remote

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// message is a message from the capsule.
type message struct {
	text   []byte
	method string          // "" of an answer
	id     json.RawMessage // nil for a notification
	params json.RawMessage // may be nil
	whose  turns.Owner     // whose share it counts towards; zero for Orla's own
	call   int64           // the id of a request, as a number
	room   *turns.Account  // of the call that it makes; nil where nobody counts

	// Set by look, for requests.
	version string          // of the protocol, where each request says it; else ""
	name    string          // of the tool, the prompt or the resource; "" for none
	args    json.RawMessage // of a tools/call
	at      trace.Context   // the trace context of the request; zero if it has none
}

// parse reads a message of the capsule, which is always valid.
func parse(text []byte) message {
	its, _ := rawjson.ReadMessage(text)
	m := message{text: text, method: rawjson.String(its.Method), id: its.ID, params: its.Params}
	if m.isRequest() {
		m.look()
	}
	return m
}

// stateless reports whether a request is of 2026-07-28 or later: it belongs to no session, and is
// cancelled by closing its stream.
func (m message) stateless() bool { return m.version != "" }

func (m message) isRequest() bool { return m.method != "" && m.id != nil }

// called returns the name of a message for the log.
func (m message) called() string {
	if m.method == "" {
		return "an answer"
	}
	return m.method
}

// cancels returns the id of the request that a notifications/cancelled is about.
func (m message) cancels() string { return string(rawjson.Get(m.params, "requestId")) }

// answers reports whether a message of the server is, or contains, the answer to the request with an
// id, and returns its result; nil for an error. raw is valid JSON.
func answers(raw []byte, id json.RawMessage) (result json.RawMessage, ok bool) {
	if !rawjson.IsObject(raw) {
		rawjson.Elements(raw, func(one json.RawMessage) bool { // a batch
			if rawjson.IsObject(one) && !ok {
				result, ok = answers(one, id)
			}
			return true
		})
		return result, ok
	}
	m, _ := rawjson.ReadMessage(raw)
	return m.Result, m.Method == nil && bytes.Equal(m.ID, id) && (m.Result != nil || m.Error != nil)
}

// about adds to a message of the server the id of the client's request that it belongs to
// (peer.MetaCall), if it is a request or a log message: those on the stream of an answer belong to
// the request that is answered. Other messages are unchanged. question is the id of the server's
// request; nil for other messages.
func about(line []byte, id json.RawMessage) (marked []byte, question json.RawMessage) {
	if !rawjson.IsObject(line) {
		return line, nil
	}
	m, _ := rawjson.ReadMessage(line)
	method := rawjson.String(m.Method)
	switch {
	case method == "": // an answer
		return line, nil
	case m.ID == nil && method != "notifications/message":
		return line, nil
	}
	params := m.Params
	if !rawjson.IsObject(params) {
		params = json.RawMessage("{}")
	}
	meta := rawjson.Get(params, "_meta")
	if !rawjson.IsObject(meta) {
		meta = json.RawMessage("{}")
	}
	return rawjson.Set(line, "params", rawjson.Set(params, "_meta", rawjson.Set(meta, peer.MetaCall, id))), m.ID
}

// oneLine copies a message of the server into one line; nil if it is not JSON. Only the length of
// the line is counted while it waits, so the copy must not keep a much larger buffer.
func oneLine(raw []byte) []byte {
	room := cap(raw)
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' || !rawjson.Valid(raw) {
		return nil
	}
	line := rawjson.Compact(raw)
	if room > ordinary && room > 2*len(line) {
		line = bytes.Clone(line)
	}
	return line
}

// ordinary is the size of a buffer that may be larger than its content.
const ordinary = 4 << 10

// failure returns the error for a call without an answer, as the capsule reports it.
func (s *session) failure(err error) error {
	if errors.Is(err, errOver) {
		return errOver
	}
	f := fault.From(err)
	retryable := f.Retryable()
	return &rpc.TransportError{Fault: &fault.Error{
		Code: f.Code, Reason: string(s.clean([]byte(f.Reason))), Retry: &retryable, RetryAfter: f.RetryAfter,
		Unsent: f.Unsent, Logged: string(s.clean([]byte(f.Logged))),
	}}
}
