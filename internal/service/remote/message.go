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

// message is one that the capsule sends.
type message struct {
	text   []byte
	method string          // "" of an answer
	id     json.RawMessage // nil of a notification
	params json.RawMessage // may be nil
	whose  turns.Owner     // whose share it takes; zero for Orla's own
	call   int64           // the id of a request as a number

	// What look finds of a request.
	version string          // of the protocol, where each request says it; else ""
	name    string          // of the tool, the prompt or the resource; "" for none
	args    json.RawMessage // of a call
	at      trace.Context   // where the request is made; the zero one where it does not say
}

// parse reads a message. What the capsule sends is well-formed.
func parse(text []byte) message {
	its, _ := rawjson.ReadMessage(text)
	m := message{text: text, method: rawjson.String(its.Method), id: its.ID, params: its.Params}
	if m.isRequest() {
		m.look()
	}
	return m
}

// stateless reports whether a request is of 2026-07-28 or later: it belongs to no
// session, and is cancelled by the end of its stream.
func (m message) stateless() bool { return m.version != "" }

func (m message) isRequest() bool { return m.method != "" && m.id != nil }

// called is what a message is called in the log.
func (m message) called() string {
	if m.method == "" {
		return "an answer"
	}
	return m.method
}

// cancels is the id of the request that a notifications/cancelled is about.
func (m message) cancels() string { return string(rawjson.Get(m.params, "requestId")) }

// answers reports whether a message of the server's is, or holds, the answer to
// the request of an id, and returns its result; nil for an error. raw is valid.
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

// about returns a message of the server's that says which request it is about
// (peer.MetaCall), if it is a request or a log message: those that come on the stream
// of an answer are about the request that is answered. What else it is stays as it is.
// question is the id of a request, nil of anything else.
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

// oneLine makes one line of a message of the server's; nil if it is no JSON. The line
// counts by its length where it waits for somebody, and so it does not keep a buffer that
// is much larger: what was read beside it, and the space around it, is gone.
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

// ordinary is the size of a buffer that may be larger than what is in it.
const ordinary = 4 << 10

// failure is why a call has no answer, as the capsule is to know it.
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
