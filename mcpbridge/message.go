package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/rawjson"
)

const (
	methodCall       = "tools/call"
	methodList       = "tools/list"
	methodListen     = "subscriptions/listen"
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"

	methodRead      = "resources/read"
	methodGetPrompt = "prompts/get"
	methodComplete  = "completion/complete"
	methodSetLevel  = "logging/setLevel"

	// What the server asks and tells.
	methodSample   = "sampling/createMessage"
	methodElicit   = "elicitation/create"
	methodRoots    = "roots/list"
	methodProgress = "notifications/progress"
	methodMessage  = "notifications/message"
)

// methods are the requests that the SDK's server knows. Whatever else is asked
// for is refused before it looks at the session's state, which would have it
// say something else of an unknown method (SPEC G1).
var methods = []string{
	methodInitialize, "ping", "server/discover", methodListen,
	methodList, methodCall,
	"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
	"prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
	// Notifications: with an id, they are invalid rather than unknown.
	"notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
}

// errorJSON is an error response; a missing id is null.
func errorJSON(id json.RawMessage, code int64, text string) json.RawMessage {
	return errorOf(id, &jsonrpc.Error{Code: code, Message: text})
}

func errorOf(id json.RawMessage, e *jsonrpc.Error) json.RawMessage {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, e})
	if err != nil { // the id and the data are JSON, and the rest are strings
		panic(err)
	}
	return raw
}

// envelope is what has to be known of a message to refuse it.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// idOf returns the id of a message that is JSON but maybe no message; nil if it has none.
func idOf(raw json.RawMessage) json.RawMessage {
	var e struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(raw, &e) // what is no object has no id
	return e.ID
}

// isRequest reports whether a message wants an answer.
func isRequest(raw json.RawMessage) bool {
	var method, id bool
	rawjson.Members(raw, func(key string, _ json.RawMessage) bool {
		method = method || key == "method"
		id = id || key == "id"
		return true
	})
	return method && id
}

func rawID(id jsonrpc.ID) json.RawMessage {
	raw, err := json.Marshal(id.Raw())
	if err != nil { // it is a string or an integer
		panic(err)
	}
	return raw
}

// maxRequestMeta bounds the _meta of a client's message in bytes: it is for the parties
// and their tools to say a little of a request, and each of them looks through it.
const maxRequestMeta = 64 << 10

// metaTooLarge is why a message with a larger one is refused.
var metaTooLarge = fmt.Sprintf("the params' _meta is over %d bytes; what is large belongs in the arguments", maxRequestMeta)

// maxDecoded bounds in bytes what the SDK decodes of a client's message, or of a batch: it
// takes up to a hundred times as much memory. What it does not decode does not count:
// arguments, and answers to questions.
const maxDecoded = 256 << 10

// maxInitialize bounds an initialize in bytes: the SDK keeps what it decodes of it for as
// long as the session lives.
const maxInitialize = 16 << 10

// maxValues bounds the values in an initialize, and in a _meta, which the SDK keeps for as
// long as the request waits: one of a few bytes takes a hundred.
const maxValues = 512

// maxMembers bounds the arguments of what is no tool: the SDK decodes their names.
const maxMembers = 1000

// What is wrong with a message that is too large in part.
const (
	escapedKeys    = "the keys of a message over 1 KiB, and of its params, must be written without escapes"
	decodedOver    = "the message is over 256 KiB beside its arguments"
	initializeOver = "an initialize may have 16 KiB and 512 values at most, beside the icons of its client"
	metaValuesOver = "the params' _meta may have 512 values at most; what is large belongs in the arguments"
)

// excess says what of a message, or of a batch, is too large; "" for nothing. raw must be
// valid JSON without space before it.
func excess(raw json.RawMessage) (over string) {
	if len(raw) <= 2*maxValues { // a value takes two bytes
		return ""
	}
	var decoded int
	if raw[0] == '[' {
		rawjson.Elements(raw, func(value json.RawMessage) bool {
			var n int
			n, over = decodedOf(value, true)
			decoded += n
			return over == ""
		})
	} else {
		decoded, over = decodedOf(raw, false)
	}
	if over == "" && decoded > maxDecoded {
		return decodedOver
	}
	return over
}

// decodedOf is how many bytes of a message the SDK decodes, and what of it is too large.
// The carrier takes nothing out of a batch.
func decodedOf(raw json.RawMessage, batch bool) (n int, over string) {
	n = len(raw)
	var method string
	var params, result json.RawMessage
	plain := rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "method":
			if method = rawjson.String(value); bytes.IndexByte(value, '\\') >= 0 { // as PHP writes "tools\/call"
				_ = json.Unmarshal(value, &method) // what is no string is refused later
				batch = true                       // the carrier does not know it
			}
		case "params":
			params = value
		case "result":
			result = value
		}
		return true
	})
	if !plain && rawjson.IsObject(raw) {
		return n, escapedKeys
	}
	var args, answers json.RawMessage // the last ones, as the SDK has it
	plain = !rawjson.IsObject(params) || rawjson.Members(params, func(key string, value json.RawMessage) bool {
		switch {
		case key == "_meta" && len(value) > maxRequestMeta:
			over = metaTooLarge
		case key == "_meta" && rawjson.Values(value) > maxValues:
			over = metaValuesOver
		case key == "arguments":
			args = value
		case key == "inputResponses":
			answers = value
		}
		return over == ""
	})
	switch {
	case over != "":
		return n, over
	case !plain:
		return n, escapedKeys
	case method == methodInitialize && (n > maxInitialize || rawjson.Values(raw) > maxValues):
		return n, initializeOver
	}
	if !batch {
		n -= len(answers) + len(result)
	}
	if args != nil && (method == methodCall || fewMembers(args)) {
		n -= len(args)
	}
	return n, ""
}

// withoutIcons is an initialize without the icons of its client, which may be large and
// which nobody shows; any other message as it is. raw must be valid JSON.
func withoutIcons(raw json.RawMessage) json.RawMessage {
	if len(raw) <= 2*maxValues || !bytes.Contains(raw, []byte(`"icons"`)) || !bytes.Contains(raw, []byte(`"`+methodInitialize+`"`)) {
		return raw
	}
	var method string
	var params, info json.RawMessage
	rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "method":
			method = rawjson.String(value)
		case "params":
			params = value
		}
		return true
	})
	if method != methodInitialize || !rawjson.IsObject(params) {
		return raw
	}
	rawjson.Members(params, func(key string, value json.RawMessage) bool {
		if key == "clientInfo" {
			info = value
		}
		return true
	})
	if !rawjson.IsObject(info) {
		return raw
	}
	info = replaced(info, member{Key: "icons", Value: nil})
	return replaced(raw, member{Key: "params", Value: replaced(params, member{Key: "clientInfo", Value: info})})
}

// fewMembers reports whether a value is an object of few members.
func fewMembers(value json.RawMessage) bool {
	n := 0
	return rawjson.Members(value, func(string, json.RawMessage) bool {
		n++
		return n <= maxMembers
	})
}

// unusualID finds ids, at any depth, that are no plain integers.
var unusualID = regexp.MustCompile(`"id"\s*:\s*-?(?:[0-9]+[.eE]|[0-9]{16})`)

// oddID returns the id of a message when it is a number that the SDK would not
// give back as it came: it keeps ids as 64-bit integers made of floats.
func oddID(raw json.RawMessage) (json.RawMessage, bool) {
	if !unusualID.Match(raw) {
		return nil, false
	}
	id := idOf(raw)
	if len(id) == 0 || id[0] == '"' {
		return nil, false
	}
	f, err := strconv.ParseFloat(string(id), 64)
	const exact = 1 << 53
	return id, err != nil || f != math.Trunc(f) || math.Abs(f) >= exact
}

// presentable makes an error of the SDK one that a client can act on: the SDK
// gives no code to some of what it refuses before any handler sees it, and
// repeats the whole of params that it cannot read. Only its text tells these
// cases apart; tests hold them.
func presentable(err error) error {
	out := &jsonrpc.Error{Message: err.Error()}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		out.Code, out.Data = wire.Code, wire.Data
	}
	handling, _, unreadable := strings.Cut(out.Message, ": unmarshaling ")
	switch {
	case unreadable:
		out.Code = jsonrpc.CodeInvalidParams
		out.Message = strings.TrimSuffix(handling, ": invalid params") + ": params are not of the shape that the protocol gives them"
	case strings.HasSuffix(out.Message, `missing required "params"`):
		out.Code, out.Message = jsonrpc.CodeInvalidParams, `missing required "params"`
	case out.Code != 0:
	case out.Message == context.Canceled.Error():
		out.Code, out.Message = jsonrpc.CodeInternalError, "the request was cancelled"
	default:
		out.Code = jsonrpc.CodeInvalidRequest
	}
	return out
}
