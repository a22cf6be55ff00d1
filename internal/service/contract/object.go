package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// maxDepth is how deep an answer may be nested: the parsers of clients have similar limits.
const maxDepth = 512

// errText is an error about an answer. It never quotes the answer.
type errText string

// Error implements error.
func (e errText) Error() string { return string(e) }

// Errors that several kinds of answers share.
const (
	errEmpty     = errText("it is empty")
	errNotJSON   = errText("it is not JSON")
	errNotObject = errText("it is not a JSON object")
)

// object has the members of a JSON object by their names: those that have a meaning here, and at
// most maxCompared others.
type object map[string]json.RawMessage

// maxCompared bounds the work for an object with a million members: beyond it, only members that
// have a meaning are checked for duplicates.
const maxCompared = 1024

// says reports whether a member of an envelope or of its error has a meaning.
func says(key string) bool {
	switch key {
	case "request_id", "status", "result", "output", "error", "tool_code", "code", "tool_reason", "reason", "retryable",
		"contract_version", "message", "details":
		return true
	}
	return false
}

// members parses a body that is one JSON object. An object with duplicate members is refused:
// different readers would read different values.
func members(raw []byte) (object, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xEF\xBB\xBF")) // RFC 8259 §8.1 allows a reader to ignore it
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, errEmpty
	case !utf8.Valid(raw):
		return nil, errText("it is not UTF-8")
	case rawjson.Deeper(raw, maxDepth):
		return nil, errText(fmt.Sprintf("it is nested more than %d deep", maxDepth))
	case !rawjson.Valid(raw):
		return nil, errNotJSON
	case !rawjson.IsObject(raw):
		return nil, errNotObject
	}
	m := object{}
	twice := false
	add := func(key string, value json.RawMessage) bool {
		_, has := m[key]
		if !has && len(m) >= maxCompared && !says(key) {
			return true
		}
		twice = twice || has
		m[key] = value
		return !twice
	}
	rawjson.AllMembers(raw, func(key []byte, value json.RawMessage) bool { return add(string(key), value) })
	if twice {
		return nil, errText("it has a member twice")
	}
	return m, nil
}

// text returns a member that is a string; "" if it is missing or null.
func (m object) text(key string) (string, error) {
	raw := m[key]
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", errText(fmt.Sprintf("its %s is not a string", key))
	}
	return text, nil
}

// first returns the first of some members that is not empty.
func (m object) first(keys ...string) (string, error) {
	for _, key := range keys {
		if text, err := m.text(key); err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

// result returns the envelope's result, or else output.result (lenient, SPEC-TOOLS 2.2), and whether
// there is either.
func (m object) result() (json.RawMessage, bool) {
	if result, ok := m["result"]; ok {
		return result, true
	}
	if raw := m["output"]; len(raw) > 0 && rawjson.IsObject(raw) {
		if output, err := members(raw); err == nil {
			result, ok := output["result"]
			return result, ok
		}
	}
	return nil, false
}
