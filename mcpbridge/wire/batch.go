package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// MaxBatch is how many messages a batch may have. They are answered side by side.
const MaxBatch = 100

// IsBatch reports whether a message begins as a batch does.
func IsBatch(raw []byte) bool {
	raw = Trimmed(raw)
	return len(raw) > 0 && raw[0] == '['
}

// Trimmed returns a body without the white space around its message.
func Trimmed(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
}

// OverBatch returns what is wrong with a batch of too many messages; "" for any other message. raw
// must be valid JSON.
func OverBatch(raw []byte) string {
	if !IsBatch(raw) {
		return ""
	}
	n := 0
	rawjson.Elements(raw, func(json.RawMessage) bool {
		n++
		return n <= MaxBatch
	})
	if n <= MaxBatch {
		return ""
	}
	return fmt.Sprintf("a batch may have %d messages at most; send them in smaller batches, or one by one", MaxBatch)
}

// ReadBatch reads the messages of a batch. refusals has, at the same index, the error that refuses a
// message; nil for none. wrong refuses the whole batch. raw must be valid JSON.
func ReadBatch(raw json.RawMessage) (all []*Message, refusals []*jsonrpc.Error, wrong *jsonrpc.Error) {
	if tooMuch := OverBatch(raw); tooMuch != "" {
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: tooMuch}
	}
	beside := 0
	rawjson.Elements(raw, func(one json.RawMessage) bool {
		m, refused := ReadMessage(one)
		beside += m.beside
		all, refusals = append(all, m), append(refusals, refused)
		return true
	})
	switch {
	case len(all) == 0:
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "an empty batch"}
	case beside > maxBeside:
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: besideOver}
	}
	return all, refusals, nil
}
