package wire

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// MaxLookedInto bounds the JSON values of a peer's answer that is decoded: each takes many times its
// bytes.
const MaxLookedInto = 10_000

// PlainObject returns an object without escapes in its keys: raw itself, or, if its keys have escapes,
// a rewritten one, with changed set. It returns nil for anything else, and for an object with too many
// members to be rewritten.
func PlainObject(raw json.RawMessage) (object json.RawMessage, changed bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return nil, false
	}
	if rawjson.Members(raw, func([]byte, json.RawMessage) bool { return true }) {
		return raw, false
	}
	if rawjson.Count(raw) > MaxLookedInto {
		return nil, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil, false
	}
	written := rawjson.Must(members)
	if !rawjson.Members(written, func([]byte, json.RawMessage) bool { return true }) {
		return nil, false // a key needs an escape
	}
	return written, true
}

// MaxMembers bounds the arguments of a prompt, and the answers to questions, which are decoded.
const MaxMembers = 1000

// TextOf returns the text of a JSON string. It reports false for any other value.
func TextOf(raw json.RawMessage) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1]), true
	}
	var decoded string // by itself: text would be on the heap in every call
	err := json.Unmarshal(raw, &decoded)
	return decoded, err == nil
}

// FewMembers reports whether a value is an object of at most MaxMembers members.
func FewMembers(value json.RawMessage) bool {
	n := 0
	return rawjson.IsObject(value) && rawjson.Members(value, func([]byte, json.RawMessage) bool {
		n++
		return n <= MaxMembers
	})
}

// SchemaJSON returns a schema of a tool as JSON.
func SchemaJSON(schema any) (json.RawMessage, error) {
	if raw, ok := schema.(json.RawMessage); ok && rawjson.Valid(raw) { // of a manifest
		return raw, nil
	}
	return json.Marshal(schema)
}
