package peer

import (
	"encoding/json"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// What a peer may say in the _meta of what it asks or tells a client. A protocol
// in which a process serves many clients, and asks them by one pipe, has no words
// for either.
const (
	// MetaCall is the id of the request that it is about, as the peer got it.
	MetaCall = "orla/call"
	// metaName is what the peer calls a question by. Clients of the stateless era
	// find it by that name, and may answer it before it is asked.
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

// Unmarked returns params as a client is to get them: MetaCall is for Orla, and may have
// been added by it.
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

// NameOf returns what a peer calls a question by; "" if it has no name, or none
// that can be one.
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
