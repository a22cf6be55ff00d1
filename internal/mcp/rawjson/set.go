package rawjson

import stdjson "encoding/json"

// Set returns an object with the member of a key as its first one, in place of what
// has that key. If value is nil, there is none. All other members stay the bytes
// that they are. Keys with escapes are written anew. It returns nil for what is
// not an object. raw must be valid.
func Set(raw []byte, key string, value stdjson.RawMessage) stdjson.RawMessage {
	if !IsObject(raw) {
		return nil
	}
	if out, ok := Edit(raw, nil, Member{key, value}); ok {
		return out
	}
	members := map[string]stdjson.RawMessage{}
	if stdjson.Unmarshal(raw, &members) != nil {
		return nil
	}
	if delete(members, key); value != nil {
		members[key] = value
	}
	out, err := stdjson.Marshal(members)
	if err != nil { // its values were valid
		return nil
	}
	return out
}
