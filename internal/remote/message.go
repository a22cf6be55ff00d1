package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
	"github.com/orla-project/orla/internal/turns"
)

// message is a line that the capsule wrote.
type message struct {
	line   []byte
	method string          // "" of an answer
	id     json.RawMessage // nil of a notification
	params json.RawMessage // may be nil
	whose  turns.Line      // whose share it takes; zero for Orla's own

	// What look finds of a request.
	version string          // of the protocol, where each request says it; else ""
	name    string          // of the tool, the prompt or the resource; "" for none
	args    json.RawMessage // of a call
	at      trace.Context   // where the request is made; the zero one where it does not say
}

// parse reads a line. What the capsule writes is well-formed.
func parse(line []byte) message {
	its, _ := rawjson.ReadMessage(line)
	m := message{line: line, method: rawjson.String(its.Method), id: its.ID, params: its.Params}
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

// line makes one line of a message of the server's; nil if it is no JSON.
func oneLine(raw []byte) []byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' || !rawjson.Valid(raw) {
		return nil
	}
	return rawjson.Compact(raw)
}

// refusal is the answer to the request of an id that an error is.
func refusal(id json.RawMessage, err error) []byte {
	if errors.Is(err, errOver) {
		return answerLine(id, &jsonrpc.Error{Code: capsule.CodeNotServed, Message: errOver.Error()})
	}
	f := fault.From(err)
	retryable := f.Retryable()
	data, err := json.Marshal(struct {
		Code         fault.Code `json:"tool_code"`
		Reason       string     `json:"tool_reason"`
		Retryable    bool       `json:"retryable"`
		RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
		Unsent       bool       `json:"unsent,omitempty"`
		Logged       string     `json:"logged,omitempty"`
	}{f.Code, f.Reason, retryable, int64(math.Ceil(f.RetryAfter.Seconds() * 1000)), f.Unsent, f.Logged})
	if err != nil { // it is made of strings and numbers
		panic(err)
	}
	return answerLine(id, &jsonrpc.Error{Code: capsule.CodeTransport, Message: f.Reason, Data: data})
}

func answerLine(id json.RawMessage, failure *jsonrpc.Error) []byte {
	raw, err := json.Marshal(failure)
	if err != nil { // as above
		panic(err)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, raw)
}
