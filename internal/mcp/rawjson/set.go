package rawjson

import stdjson "encoding/json"

// Set returns an object with the member of a key as its first one, in place of what
// has that key. If value is nil, there is none. All other members stay the bytes
// that they are; if a key has escapes, the keys are written another way. It returns nil for
// what is not an object. raw must be valid.
func Set(raw []byte, key string, value stdjson.RawMessage) stdjson.RawMessage {
	if !IsObject(raw) {
		return nil
	}
	if out, ok := Edit(raw, nil, Member{key, value}); ok {
		return out
	}
	out := append(make([]byte, 0, len(raw)+len(key)+len(value)+len(`{"":,}`)), '{')
	if value != nil {
		out = appendMember(out, key, value)
	}
	AllMembers(raw, func(its []byte, value stdjson.RawMessage) bool {
		if string(its) == key {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendQuote(out, string(its)), ':'), value...)
		return true
	})
	return append(out, '}')
}
