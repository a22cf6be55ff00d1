package mcpbridge

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/orla-project/orla/internal/rawjson"
)

// parts is JSON in pieces, in order, so that something can be put around a
// large payload without a copy of it.
type parts [][]byte

func (p parts) size() int {
	n := 0
	for _, part := range p {
		n += len(part)
	}
	return n
}

// join makes one piece of p.
func (p parts) join() []byte { return slices.Concat(p...) }

// member is a member of a JSON object.
type member struct {
	key   string
	value json.RawMessage // nil takes it out
}

// rewritten returns raw, an object, with other members: those of change take
// the place of what has their key. It reports false for an object whose keys
// have escapes, and for what is no object.
func rewritten(raw json.RawMessage, change ...member) (parts, bool) {
	out := parts{[]byte("{")}
	comma := []byte(nil)
	add := func(key string, value json.RawMessage) {
		out = append(out, slices.Concat(comma, []byte(`"`+key+`":`)), value)
		comma = []byte(",")
	}
	for _, m := range change {
		if m.value != nil {
			add(m.key, m.value)
		}
	}
	ok := rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		if !slices.ContainsFunc(change, func(m member) bool { return m.key == key }) {
			add(key, value)
		}
		return true
	})
	return append(out, []byte("}")), ok
}

// boolean is a truth value as JSON.
func boolean(b bool) json.RawMessage { return strconv.AppendBool(nil, b) }
