package wire

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Parts is JSON in pieces, so that something can be put around a large payload without copying it.
type Parts [][]byte

// Size is how many bytes p has.
func (p Parts) Size() int {
	n := 0
	for _, part := range p {
		n += len(part)
	}
	return n
}

// Join makes one piece of p.
func (p Parts) Join() []byte { return slices.Concat(p...) }

// Member is a member of a JSON object. A nil value removes it.
type Member = rawjson.Member

// ownPart is the size from which a value is not copied but becomes a part of Parts.
const ownPart = 4 << 10

// Rewritten returns the object raw with the members of change in place of those with their keys. It
// reports false for an object whose keys have escapes, and for anything else. All small members share
// one buffer.
func Rewritten(raw json.RawMessage, change ...Member) (Parts, bool) {
	out, small := make(Parts, 0, 4), append(make([]byte, 0, min(len(raw), ownPart)+64), '{')
	begun, first := 0, true // where the part in small begins, and whether a member is the first one
	add := func(key string, value json.RawMessage) {
		if !first {
			small = append(small, ',')
		}
		first = false
		small = append(append(append(small, '"'), key...), `":`...)
		if len(value) < ownPart {
			small = append(small, value...)
			return
		}
		out = append(out, small[begun:len(small):len(small)], value)
		begun = len(small)
	}
	for _, m := range change {
		if m.Value != nil {
			add(m.Key, m.Value)
		}
	}
	ok := rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		if !slices.ContainsFunc(change, func(m Member) bool { return m.Key == string(key) }) {
			add(string(key), value)
		}
		return true
	})
	small = append(small, '}')
	return append(out, small[begun:]), ok
}

// Replaced is like Rewritten, in one piece. It returns raw if Rewritten reports false.
func Replaced(raw json.RawMessage, change ...Member) json.RawMessage {
	out, ok := rawjson.Edit(raw, nil, change...)
	if !ok {
		return raw
	}
	return out
}

// Boolean returns a boolean as JSON.
func Boolean(b bool) json.RawMessage { return strconv.AppendBool(nil, b) }
