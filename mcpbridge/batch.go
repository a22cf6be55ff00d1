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

// batch is a JSON-RPC batch that waits for its answers.
type batch struct {
	left    int
	answers []parts
	letGo   []func() // of the room of those that are in
	held    *share   // until they are written
}

// add collects an answer, and returns all of them when it was the last; nil before, and if
// there are none.
func (in *batch) add(answer parts, letGo func()) (all parts, letAllGo func()) {
	if answer != nil {
		in.answers = append(in.answers, answer)
	}
	if letGo != nil {
		in.letGo = append(in.letGo, letGo)
	}
	if in.left--; in.left > 0 {
		return nil, nil
	}
	in.held.worked()
	between := []byte("[")
	for _, one := range in.answers {
		all = append(append(all, between), one...)
		between = []byte(",")
	}
	if all != nil {
		all = append(all, []byte("]"))
	}
	return all, func() {
		in.held.end()
		for _, letGo := range in.letGo {
			letGo()
		}
	}
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

func (c *conn) takeBatch(data []byte, held *share) {
	all, refusals, wrong := readBatch(data)
	if wrong != nil {
		held.end()
		c.complain(nil, wrong.Code, wrong.Message)
		return
	}
	in := &batch{left: 1, held: held} // held open until all members are in
	for i, m := range all {
		var refusal json.RawMessage
		switch {
		case refusals[i] != nil:
			refusal = errorOf(m.id, refusals[i])
		case m.method == methodInitialize:
			refusal = errorJSON(m.id, jsonrpc.CodeInvalidRequest, "an initialize cannot be part of a batch")
		default:
			refusal = c.accept(m, pending{in: in})
		}
		if refusal != nil {
			c.mu.Lock()
			in.answers = append(in.answers, parts{refusal})
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	whole, letGo := in.add(nil, nil)
	c.mu.Unlock()
	if letGo != nil {
		defer letGo()
	}
	if whole != nil {
		c.deliverLogged(whole)
	}
}
