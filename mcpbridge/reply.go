package mcpbridge

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

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

// What stands around the id and the result of a response. Nobody changes it.
var (
	responseHead = []byte(`{"jsonrpc":"2.0","id":`)
	resultKey    = []byte(`,"result":`)
	closing      = []byte("}")
)

func internalError() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; Orla's log has the details"}
}

// notification is a message that wants no answer.
func notification(method string, params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	out := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0","method":"`...)
	out = append(append(out, method...), `","params":`...)
	return append(append(out, params...), '}')
}

func methodNotFound(method string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + quoted(method)}
}
