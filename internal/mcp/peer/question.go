package peer

import (
	"encoding/json"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Keys that a peer may set in the _meta of its requests and notifications to a client. MCP has none for
// this: it does not provide for a process that serves many clients on one pipe.
const (
	// MetaCall is the id of the request that the message is about, as the peer got it.
	MetaCall = "orla/call"
	// metaName is the peer's name of a question. In the stateless era it is the key of the question,
	// so that a client can answer it before it is asked.
	metaName = "orla/name"
)

// About returns the id of the request that params are about; 0 if they name none.
func About(params json.RawMessage) int64 {
	id, err := strconv.ParseInt(string(meta(params, MetaCall)), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// Unmarked returns params for a client: without MetaCall, which is for Orla.
func Unmarked(params json.RawMessage) json.RawMessage {
	if meta(params, MetaCall) == nil {
		return params
	}
	var left json.RawMessage
	rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		if string(key) == "_meta" {
			left = rawjson.Set(value, MetaCall, nil)
		}
		return true
	})
	if rawjson.Empty(left) {
		left = nil
	}
	return rawjson.Set(params, "_meta", left)
}

// NameOf returns the peer's name of a question; "" if it has none, or one that is too long.
func NameOf(params json.RawMessage) string {
	const long = 64
	name := rawjson.String(meta(params, metaName))
	if len(name) > long {
		return ""
	}
	return name
}

// meta returns a member of the _meta of params; nil if there is none.
func meta(params json.RawMessage, member string) json.RawMessage {
	return rawjson.Get(rawjson.Get(params, "_meta"), member)
}
