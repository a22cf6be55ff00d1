package results

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// ordinary reports whether a _meta has only numbers, strings and booleans, as that of a simple
// tool's answer has, and how many bytes they take.
func ordinary(meta mcp.Meta) (size int, ok bool) {
	const number = 20 // digits at most
	for key, value := range meta {
		switch v := value.(type) {
		case int, int64, bool:
			size += number
		case string:
			size += len(v)
		default:
			return 0, false
		}
		size += len(key) + len(`"":"",`)
	}
	return size, true
}

// Encode returns a result as JSON, byte for byte as the SDK encodes it. The SDK uses reflection,
// which costs more than everything else that is done for a short answer. self is the server's
// Implementation as JSON in the stateless era; nil in the others. Encode reports false for a
// result that has more than text blocks and an ordinary _meta.
func Encode(res *mcp.CallToolResult, self json.RawMessage) ([]byte, bool) {
	_, ok := ordinary(res.Meta)
	if _, says := res.Meta[mcp.MetaKeyServerInfo]; says || !ok || !plain(res.Content) || res.Content == nil || res.StructuredContent != nil || res.InputRequests != nil {
		return nil, false
	}
	out := append(make([]byte, 0, 256+len(self)+rawjson.QuotedSize(Payload(res))), '{')
	if len(res.Meta) > 0 || self != nil {
		out = append(appendMeta(append(out, `"_meta":`...), res.Meta, self), ',')
	}
	out = append(out, `"content":[`...)
	for i, block := range res.Content {
		if i > 0 {
			out = append(out, ',')
		}
		t, _ := block.(*mcp.TextContent) // it is plain
		out = append(rawjson.AppendQuote(append(out, `{"type":"text","text":`...), t.Text), '}')
	}
	out = append(out, ']')
	if res.IsError {
		out = append(out, `,"isError":true`...)
	}
	if self != nil { // the SDK does not export this member
		out = append(out, `,"resultType":"complete"`...)
	}
	return append(out, '}'), true
}

// appendMeta appends an ordinary _meta as JSON.
func appendMeta(out []byte, meta mcp.Meta, self json.RawMessage) []byte {
	keys := slices.AppendSeq(make([]string, 0, len(meta)+1), maps.Keys(meta))
	if self != nil {
		keys = append(keys, mcp.MetaKeyServerInfo)
	}
	slices.Sort(keys)
	before := byte('{')
	for _, key := range keys {
		out = append(rawjson.AppendQuote(append(out, before), key), ':')
		switch v := meta[key].(type) {
		case int:
			out = strconv.AppendInt(out, int64(v), 10)
		case int64:
			out = strconv.AppendInt(out, v, 10)
		case bool:
			out = strconv.AppendBool(out, v)
		case string:
			out = rawjson.AppendQuote(out, v)
		default: // none is left
			out = append(out, self...)
		}
		before = ','
	}
	return append(out, '}')
}
