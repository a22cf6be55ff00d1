package wire

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// ErrorJSON returns an error response. A missing id becomes null.
func ErrorJSON(id json.RawMessage, code int64, text string) json.RawMessage {
	return ErrorOf(id, &jsonrpc.Error{Code: code, Message: text})
}

// ErrorOf returns an error response. A missing id becomes null.
func ErrorOf(id json.RawMessage, e *jsonrpc.Error) json.RawMessage {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	return rawjson.Must(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, e})
}

// The parts of a response around its id and its result. They must not be modified.
var (
	ResponseHead = []byte(`{"jsonrpc":"2.0","id":`)
	ResultKey    = []byte(`,"result":`)
	Closing      = []byte("}")
)

// InternalError returns what a client gets for an error whose text goes to the log only.
func InternalError() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; Orla's log has the details"}
}

// Notification returns a notification.
func Notification(method string, params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	out := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0","method":"`...)
	out = append(append(out, method...), `","params":`...)
	return append(append(out, params...), '}')
}

// MethodNotFound returns the error for an unknown method.
func MethodNotFound(method string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + Quoted(method)}
}
