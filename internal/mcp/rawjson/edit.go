package rawjson

import (
	stdjson "encoding/json"
	"slices"
)

// Member is a member of an object.
type Member struct {
	Key   string             // without escapes
	Value stdjson.RawMessage // nil for none
}

// Edit returns a copy of raw, a valid object, with the members of add first, in place
// of those that have their keys, and without those that drop, if it is not nil, says
// yes to. All other members stay the bytes that they are. It makes one copy, however
// many members there are. It reports false if a key has escapes, or raw is not an object.
func Edit(raw []byte, drop func(key string) bool, add ...Member) (stdjson.RawMessage, bool) {
	size := len(raw) + len("{}")
	for _, m := range add {
		size += len(m.Key) + len(m.Value) + len(`"":,`)
	}
	out := append(make([]byte, 0, size), '{')
	for _, m := range add {
		if m.Value != nil {
			out = appendMember(out, m.Key, m.Value)
		}
	}
	ok := Members(raw, func(key []byte, value stdjson.RawMessage) bool {
		if !named(add, key) && (drop == nil || !drop(string(key))) {
			out = appendMember(out, key, value)
		}
		return true
	})
	return append(out, '}'), ok
}

// named reports whether one of a few members has a key.
func named(members []Member, key []byte) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Key == string(key) })
}

// appendMember appends a member to an object that is not closed.
func appendMember[K string | []byte](out []byte, key K, value []byte) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	out = append(append(append(out, '"'), key...), `":`...)
	return append(out, value...)
}
