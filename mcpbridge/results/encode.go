package results

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// ordinary reports whether a _meta has nothing but numbers, words and truth
// values, as that of a simple tool's answer, and how long these are.
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

// Encode is a result as JSON, byte for byte as the SDK makes it: by reflection,
// which costs more than all else that is done for a short answer. self is what
// the server says of itself in the stateless era; nil in the others. It reports
// false for what is not made of texts with an ordinary _meta.
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
	if self != nil { // which the SDK keeps to itself
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
