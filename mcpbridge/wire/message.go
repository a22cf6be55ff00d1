package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// IDOf returns the id of JSON that may not be a message; nil if it has none, or one of over MaxToken
// bytes.
func IDOf(raw json.RawMessage) json.RawMessage {
	var e struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(raw, &e) // anything but an object has no id
	if len(e.ID) > MaxToken {
		return nil
	}
	return e.ID
}

// maxRequestMeta bounds the _meta of a client's message in bytes. It is meant for a few short values,
// and is read several times.
const maxRequestMeta = 64 << 10

// metaTooLarge is the text of the error for a larger _meta.
var metaTooLarge = fmt.Sprintf("the params' _meta is over %d bytes; what is large belongs in the arguments", maxRequestMeta)

// maxBeside bounds the bytes of a client's message, or a batch, without the parts that are passed on
// unchanged: arguments, and answers to questions.
const maxBeside = 256 << 10

// maxInitialize bounds an initialize in bytes, without the icons of the client, which may be large
// and are not used.
const maxInitialize = 16 << 10

// MaxToken bounds an id and a progress token in bytes: every message about a request repeats them.
const MaxToken = 1 << 10

// maxValues bounds the JSON values in an initialize, and in a _meta.
const maxValues = 512

// What is wrong with a message that is too large in part.
const (
	escapedKeys    = "the keys of a message over 1 KiB, and of its params, must be written without escapes"
	besideOver     = "the message is over 256 KiB without its arguments"
	initializeOver = "an initialize may have 16 KiB and 512 values at most, without the icons of its client"
	metaValuesOver = "the params' _meta may have 512 values at most; what is large belongs in the arguments"
)

// What is wrong with a message that is not one.
const (
	NotJSON    = "a line is not valid JSON in UTF-8 of at most 500 levels; send one message a line"
	notMessage = "not a JSON-RPC 2.0 message"
	longID     = "an id may have 1 KiB at most"
	oddNumber  = "an id must be a string or an integer that every client can hold"
	NotShaped  = "params are not of the shape that the protocol gives them"
)

// Message is a JSON-RPC message, split into its members and not decoded.
type Message struct {
	ID     json.RawMessage // as it came; nil for none, and for null
	named  bool            // it has a method: it is not a response
	Method string
	Params Params          // of a request or a notification
	Result json.RawMessage // of a response; nil for none
	Failed json.RawMessage // the error of a response; nil for none
	beside int             // its bytes without the parts that are passed on unchanged
}

// Params are the params of a message: the members that more than one method has. A missing one is
// nil.
type Params struct {
	Raw       json.RawMessage // nil for none, and for null
	Odd       bool            // they are not an object
	Meta      json.RawMessage // _meta
	Name      json.RawMessage
	URI       json.RawMessage
	Cursor    json.RawMessage
	Arguments json.RawMessage
	Responses json.RawMessage // inputResponses
	State     json.RawMessage // requestState
}

// Asks reports whether a message is a request.
func (m *Message) Asks() bool { return m.named && m.ID != nil }

// Answers reports whether a message is a response.
func (m *Message) Answers() bool { return !m.named }

// ReadMessage splits a message into its members. raw must be valid JSON, without leading space. If the
// message is refused, m has its id, unless there is none or it is too long to be repeated.
func ReadMessage(raw json.RawMessage) (m *Message, refused *jsonrpc.Error) {
	m = &Message{}
	refuse := func(code int64, text string) (*Message, *jsonrpc.Error) {
		if m.ID == nil {
			m.ID = IDOf(raw)
		}
		if len(m.ID) > MaxToken {
			m.ID = nil // the refusal would be many times as large
		}
		return m, &jsonrpc.Error{Code: code, Message: text}
	}
	if raw[0] != '{' {
		return refuse(jsonrpc.CodeInvalidRequest, notMessage)
	}
	its, plain := rawjson.ReadMessage(raw)
	m.ID, m.Result, m.Failed = its.ID, its.Result, its.Error
	version, method, given := its.Version, its.Method, its.Params
	if !plain {
		if len(raw) > 2*maxValues { // small ones are rewritten without escapes
			return refuse(jsonrpc.CodeInvalidParams, escapedKeys)
		}
		written, changed := PlainObject(raw)
		if !changed {
			return refuse(jsonrpc.CodeInvalidRequest, notMessage)
		}
		return ReadMessage(written)
	}
	ok := true
	if method != nil && string(method) != "null" {
		m.named = true
		m.Method, ok = TextOf(method)
	}
	switch odd, usual := oddID(m.ID); {
	case len(m.ID) > MaxToken:
		return refuse(jsonrpc.CodeInvalidParams, longID)
	case odd:
		return refuse(jsonrpc.CodeInvalidRequest, oddNumber)
	case !usual || !ok || string(version) != `"2.0"`:
		return refuse(jsonrpc.CodeInvalidRequest, notMessage)
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	if !m.named && m.ID == nil {
		return refuse(jsonrpc.CodeInvalidRequest, notMessage)
	}
	var tooMuch string
	if m.Params, tooMuch = readParams(given, len(raw)); tooMuch != "" {
		return refuse(jsonrpc.CodeInvalidParams, tooMuch)
	}
	if tooMuch = m.measure(raw); tooMuch != "" {
		return refuse(jsonrpc.CodeInvalidParams, tooMuch)
	}
	return m, nil
}

// readParams splits the params of a message into their members. size is that of the message. tooMuch
// says which part is too large; "" for none.
func readParams(raw json.RawMessage, size int) (p Params, tooMuch string) {
	if raw == nil || string(raw) == "null" {
		return p, ""
	}
	p.Raw = raw
	if raw[0] != '{' {
		p.Odd = true
		return p, ""
	}
	plain := rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "_meta":
			p.Meta = value
		case "name":
			p.Name = value
		case "uri":
			p.URI = value
		case "cursor":
			p.Cursor = value
		case "arguments":
			p.Arguments = value
		case "inputResponses":
			p.Responses = value
		case "requestState":
			p.State = value
		}
		return true
	})
	switch {
	case !plain && size > 2*maxValues:
		return p, escapedKeys
	case !plain:
		written, changed := PlainObject(raw)
		if !changed {
			p.Odd = true
			return p, ""
		}
		return readParams(written, size)
	case len(p.Meta) > maxRequestMeta:
		return p, metaTooLarge
	case len(p.Meta) > 2*maxValues && rawjson.Values(p.Meta) > maxValues:
		return p, metaValuesOver
	}
	return p, ""
}

// measure sets m.beside. tooMuch says which part of the message is too large; "" for none.
func (m *Message) measure(raw json.RawMessage) (tooMuch string) {
	if m.beside = len(raw); m.beside <= 2*maxValues { // a value takes two bytes
		return ""
	}
	if m.Method == MethodInitialize {
		icons := iconsIn(m.Params.Raw)
		if len(raw)-len(icons) > maxInitialize || rawjson.Values(raw)-rawjson.Values(icons) > maxValues {
			return initializeOver
		}
		m.beside -= len(icons)
		return ""
	}
	m.beside -= len(m.Params.Responses) + len(m.Result) + len(m.Failed)
	if args := m.Params.Arguments; args != nil && (m.Method == MethodCall || FewMembers(args)) {
		m.beside -= len(args)
	}
	if m.beside > maxBeside {
		return besideOver
	}
	return ""
}

// iconsIn returns the icons of the client in the params of an initialize.
func iconsIn(params json.RawMessage) (icons json.RawMessage) {
	return rawjson.Get(rawjson.Get(params, "clientInfo"), "icons")
}

// oddID reports whether an id is a number that not every client can represent (odd), and whether it
// is a string, a number, null or missing (usual).
func oddID(id json.RawMessage) (odd, usual bool) {
	switch {
	case len(id) == 0 || id[0] == '"' || string(id) == "null":
		return false, true
	case id[0] != '-' && (id[0] < '0' || id[0] > '9'):
		return false, false
	}
	f, err := strconv.ParseFloat(string(id), 64)
	const exact = 1 << 53
	return err != nil || f != math.Trunc(f) || math.Abs(f) >= exact, true
}

// IDKey returns the same key for an id however it is written.
func IDKey(id json.RawMessage) string {
	switch {
	case len(id) == 0:
		return ""
	case id[0] == '"':
		if text, ok := TextOf(id); ok && bytes.IndexByte(id, '\\') >= 0 {
			return string(rawjson.Quote(text))
		}
	case bytes.ContainsAny(id, ".eE"):
		if f, err := strconv.ParseFloat(string(id), 64); err == nil {
			return strconv.FormatInt(int64(f), 10)
		}
	}
	return string(id)
}

// maxDepth is how deep a message may be nested. Python reads less than 1000 levels.
const maxDepth = 500

// Valid reports whether a message of a client is JSON that capsules can read. Many end where
// they are sent bytes that are not UTF-8, numbers of thousands of digits, or JSON of a
// thousand levels.
func Valid(raw []byte) bool {
	valid, ascii := rawjson.CheckDepth(raw, maxDepth)
	return valid && (ascii || utf8.Valid(raw))
}

// AsksSomething reports whether a message that has not been read yet gets an answer. Something that
// is not a message gets one too.
func AsksSomething(raw []byte) bool {
	raw = Trimmed(raw)
	if !Valid(raw) {
		return true
	}
	m, refused := ReadMessage(raw)
	return refused != nil || m.Asks()
}

// Notified takes a notification of a client. It ignores unknown ones.
func Notified(m *Message, cancel func(id json.RawMessage)) {
	if m.Method == MethodCancelled {
		if id := rawjson.Get(m.Params.Raw, "requestId"); id != nil {
			cancel(id)
		}
	}
}
