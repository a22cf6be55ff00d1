package wire

import (
	"encoding/json"
	"strings"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// OwnMetaOf returns of a request's _meta what is for the peer: not what the
// protocol and Orla keep for the parties, and no progress token, which is the client's.
// A peer may give it back with what it says, which must not be about another request.
// It returns nil if nothing is left.
func OwnMetaOf(meta json.RawMessage) json.RawMessage {
	if meta == nil {
		return nil
	}
	plain, _ := PlainObject(meta)
	if plain == nil {
		return nil
	}
	own, _ := rawjson.Edit(plain, func(key string) bool {
		return begins(key, ProtocolPrefix) || begins(key, ownPrefix) || strings.EqualFold(key, "progressToken")
	})
	if rawjson.Empty(own) {
		return nil
	}
	return own
}

// ownPrefix begins the keys of _meta by which a peer says what is about which request
// (peer.MetaCall).
const ownPrefix = "orla/"

// begins reports whether a key begins so, in any case: some peers do not tell cases apart.
func begins(key, prefix string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// OwnParams are the params of a request that are for the peer: not what the protocol keeps
// for the parties, and no progress token, which is the client's.
func OwnParams(p Params) json.RawMessage {
	if p.Raw == nil {
		return nil
	}
	own, _ := rawjson.Edit(p.Raw, keptByOrla, Member{Key: "_meta", Value: OwnMetaOf(p.Meta)})
	return own
}

// keptByOrla reports whether a key of params, in any case, is one that a peer gets from
// Orla alone: some peers do not tell cases apart.
func keptByOrla(key string) bool {
	return strings.EqualFold(key, "_meta") || strings.EqualFold(key, "inputResponses") || strings.EqualFold(key, "requestState")
}
