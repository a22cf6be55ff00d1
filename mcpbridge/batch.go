package mcpbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/rawjson"
)

// maxBatch is how many messages a batch may have. They are answered side by side.
const maxBatch = 100

// overBatch says of a batch with too many messages what is wrong; "" of any other
// message. raw must be valid JSON.
func overBatch(raw []byte) string {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) == 0 || raw[0] != '[' {
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
	answers []json.RawMessage
	held    *share // until all are in
}

// add collects an answer, and returns all of them when it was the last.
func (in *batch) add(answer json.RawMessage) json.RawMessage {
	if answer != nil {
		in.answers = append(in.answers, answer)
	}
	if in.left--; in.left > 0 {
		return nil
	}
	in.held.end()
	if len(in.answers) == 0 {
		return nil
	}
	return slices.Concat([]byte("["), bytes.Join(asBytes(in.answers), []byte(",")), []byte("]"))
}

func asBytes(raw []json.RawMessage) [][]byte {
	all := make([][]byte, len(raw))
	for i, r := range raw {
		all[i] = r
	}
	return all
}

func (c *conn) takeBatch(data []byte, held *share) {
	if over := overBatch(data); over != "" {
		held.end()
		c.complain(nil, jsonrpc.CodeInvalidRequest, over)
		return
	}
	if over := excess(data); over != "" {
		held.end()
		c.complain(nil, jsonrpc.CodeInvalidParams, over)
		return
	}
	var members []json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || len(members) == 0 {
		held.end()
		c.complain(nil, jsonrpc.CodeInvalidRequest, "an empty batch")
		return
	}
	in := &batch{left: 1, held: held} // held open until all members are in
	var refusals []json.RawMessage
	for _, raw := range members {
		if msg, refusal := c.accept(raw, in); msg != nil {
			c.queue = append(c.queue, msg)
		} else if refusal != nil {
			refusals = append(refusals, refusal)
		}
	}
	c.mu.Lock()
	in.answers = append(in.answers, refusals...)
	whole := in.add(nil)
	c.mu.Unlock()
	if whole != nil {
		c.deliverLogged(whole)
	}
}
