package protocol

import (
	"context"
	"encoding/json"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Traced returns a call's _meta with the trace context of ctx in place of the client's, which
// is the same or further up in the same trace. If ctx has none, it returns meta, which may be
// nil.
func Traced(ctx context.Context, meta json.RawMessage) json.RawMessage {
	t := trace.From(ctx)
	if t.IsZero() {
		return meta
	}
	own := []rawjson.Member{{Key: trace.ParentKey, Value: rawjson.Quote(t.Parent())}, {Key: trace.StateKey}}
	if t.State() != "" {
		own[1].Value = rawjson.Quote(t.State())
	}
	meta = orEmpty(meta)
	had := ""
	ok := rawjson.Members(meta, func(key []byte, value json.RawMessage) bool {
		if string(key) == trace.ParentKey {
			had = rawjson.String(value)
		}
		return true
	})
	if !ok || had == t.Parent() { // it cannot be read, or is the client's own context: it stays unchanged
		return meta
	}
	with, _ := rawjson.Edit(meta, nil, own...)
	return with
}
