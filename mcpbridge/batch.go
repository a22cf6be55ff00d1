package mcpbridge

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/rawjson"
)

// maxBatch is how many messages a batch may have. They are answered side by side.
const maxBatch = 100

// isBatch reports whether a message begins as a batch does.
func isBatch(raw []byte) bool {
	raw = trimmed(raw)
	return len(raw) > 0 && raw[0] == '['
}

// trimmed is a body without what may stand around a message.
func trimmed(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
}

// overBatch says of a batch with too many messages what is wrong; "" of any other
// message. raw must be valid JSON.
func overBatch(raw []byte) string {
	if !isBatch(raw) {
		return ""
	}
	n := 0
	rawjson.Elements(raw, func(json.RawMessage) bool {
		n++
		return n <= maxBatch
	})
	if n <= maxBatch {
		return ""
	}
	return fmt.Sprintf("a batch may have %d messages at most; send them in smaller batches, or one by one", maxBatch)
}

// readBatch takes the messages of a batch apart; what refuses one stands at its place.
// It returns what is wrong with all of it instead. raw must be valid JSON.
func readBatch(raw json.RawMessage) (all []*message, refusals []*jsonrpc.Error, wrong *jsonrpc.Error) {
	if over := overBatch(raw); over != "" {
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: over}
	}
	beside := 0
	rawjson.Elements(raw, func(one json.RawMessage) bool {
		m, refused := readMessage(one)
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
