package wire

import (
	"encoding/json"
	"strings"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// OwnMetaOf returns the part of a request's _meta that the peer gets: without the keys that the
// protocol or Orla reserves, and without the progress token, which belongs to the client's own
// request. It returns nil if nothing is left.
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

// ownPrefix begins the keys of _meta with which a peer says which request a message is about
// (peer.MetaCall). A client must not set them.
const ownPrefix = "orla/"

// begins reports whether a key begins with a prefix, in any case: some peers ignore the case of keys.
func begins(key, prefix string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// OwnParams returns the params of a request that the peer gets; see OwnMetaOf.
func OwnParams(p Params) json.RawMessage {
	if p.Raw == nil {
		return nil
	}
	own, _ := rawjson.Edit(p.Raw, keptByOrla, Member{Key: "_meta", Value: OwnMetaOf(p.Meta)})
	return own
}

// keptByOrla reports whether only Orla sets a key in the params for a peer. The case of the key is
// ignored, as some peers do.
func keptByOrla(key string) bool {
	return strings.EqualFold(key, "_meta") || strings.EqualFold(key, "inputResponses") || strings.EqualFold(key, "requestState")
}
