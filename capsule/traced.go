package capsule

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
)

// traced is a call's _meta with the trace context that ctx carries in place of
// the client's: that is further up in the same trace, or the same. Without one
// it is meta itself, which may be nil.
func traced(ctx context.Context, meta json.RawMessage) json.RawMessage {
	t := trace.From(ctx)
	if t.IsZero() {
		return meta
	}
	had := ""
	with := slices.Concat([]byte(`{"`+trace.ParentKey+`":`), rawjson.Quote(t.Parent()))
	if t.State() != "" {
		with = slices.Concat(with, []byte(`,"`+trace.StateKey+`":`), rawjson.Quote(t.State()))
	}
	ok := meta == nil || rawjson.Members(meta, func(key string, value json.RawMessage) bool {
		switch key {
		case trace.ParentKey:
			had = rawjson.String(value)
		case trace.StateKey:
		default:
			with = slices.Concat(with, []byte(`,"`+key+`":`), value)
		}
		return true
	})
	if !ok || had == t.Parent() { // it is odd, or the client's own: it stays as it came
		return meta
	}
	return append(with, '}')
}
