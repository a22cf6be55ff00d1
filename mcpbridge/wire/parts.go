package wire

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Parts is JSON in pieces, in order, so that something can be put around a
// large payload without a copy of it.
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

// Member is a member of a JSON object. A value of nil takes it out.
type Member = rawjson.Member

// ownPart is the size of a value from which it is a part of its own, and not copied.
const ownPart = 4 << 10

// Rewritten returns raw, an object, with other members: those of change take
// the place of what has their key. It reports false for an object whose keys
// have escapes, and for what is not an object. All small members share one buffer.
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

// Replaced is Rewritten in one piece; raw itself if it is unusual.
func Replaced(raw json.RawMessage, change ...Member) json.RawMessage {
	out, ok := rawjson.Edit(raw, nil, change...)
	if !ok {
		return raw
	}
	return out
}

// Boolean is a truth value as JSON.
func Boolean(b bool) json.RawMessage { return strconv.AppendBool(nil, b) }
