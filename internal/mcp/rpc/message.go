package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// fewBytes is the size up to which a message is made one piece: copying it is cheaper than writing twice.
const fewBytes = 16 << 10

// requestLine is a request in pieces.
func requestLine(id int64, method string, paramsOf func(id int64) [][]byte) [][]byte {
	var room [256]byte // most of the time it is copied from
	head := room[:0]
	head = append(head, `{"jsonrpc":"2.0","id":`...)
	head = strconv.AppendInt(head, id, 10)
	head = append(head, `,"method":"`...)
	head = append(head, method...)
	head = append(head, '"')
	if paramsOf == nil {
		return [][]byte{append(bytes.Clone(head), "}\n"...)}
	}
	head = append(head, `,"params":`...)
	params := paramsOf(id)
	size := len(head) + len("}\n")
	for _, piece := range params {
		size += len(piece)
	}
	if size > fewBytes {
		return append(append([][]byte{bytes.Clone(head)}, params...), []byte("}\n"))
	}
	whole := append(make([]byte, 0, size), head...)
	for _, piece := range params {
		whole = append(whole, piece...)
	}
	return [][]byte{append(whole, "}\n"...)}
}

// Notify sends a notification. It returns when the order is fixed: messages that are sent afterwards come
// after it. params is valid JSON on one line, or nil.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.transport.Send(ctx, nil, [][]byte{messageLine(`"method":"`+method+`"`, `"params":`, params)})
}

// Post sends a notification later, and does not wait for it. It counts as whose until it is sent.
func (c *Conn) Post(whose turns.Owner, method string, params json.RawMessage) {
	c.transport.Post(whose, messageLine(`"method":"`+method+`"`, `"params":`, params))
}

// Reply answers a request of the other side with a result, or with an error.
func (c *Conn) Reply(whose turns.Owner, id, result json.RawMessage, refusal *jsonrpc.Error) {
	head := `"id":` + string(id)
	if refusal == nil {
		c.transport.Post(whose, messageLine(head, `"result":`, rawjson.Compact(result)))
		return
	}
	raw, err := json.Marshal(refusal)
	if err != nil { // its data is not JSON
		raw, _ = json.Marshal(&jsonrpc.Error{Code: refusal.Code, Message: refusal.Message})
	}
	c.transport.Post(whose, messageLine(head, `"error":`, raw))
}

func messageLine(head, key string, value json.RawMessage) []byte {
	line := append([]byte(`{"jsonrpc":"2.0",`), head...)
	if value != nil {
		line = append(append(append(line, ','), key...), value...)
	}
	return append(line, "}\n"...)
}
