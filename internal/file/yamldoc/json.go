package yamldoc

import (
	"bytes"
	"encoding/json"
	"strings"

	"gopkg.in/yaml.v3"
)

// JSON is a subtree of any shape as compact JSON, with keys in the order of the file and numbers
// with all their digits.
type JSON []byte

// UnmarshalJSON keeps a copy of raw.
func (j *JSON) UnmarshalJSON(raw []byte) error {
	*j = bytes.Clone(raw)
	return nil
}

// MarshalJSON returns the subtree; null if it is empty.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == nil {
		return []byte("null"), nil
	}
	return j, nil
}

// JSONSchema allows any value.
func (JSON) JSONSchema() string { return `{}` }

// appendJSON appends the JSON of n to out. It reports false after it has added a fault.
func (d *decoder) appendJSON(out []byte, n *yaml.Node, key string, depth int) ([]byte, bool) {
	n, leave := d.enter(n, key, depth)
	defer leave()
	if n == nil {
		return out, false
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.appendObject(out, n, key, depth)
	case yaml.SequenceNode:
		return d.appendArray(out, n, key, depth)
	}
	switch n.Tag {
	case "!!null":
		return append(out, "null"...), true
	case "!!bool":
		return append(out, strings.ToLower(n.Value)...), true
	case "!!int", "!!float":
		num, err := number(n.Value)
		if err != nil {
			d.doc.fault(n, key, "%v", err)
			return out, false
		}
		return append(out, num...), true
	}
	return appendString(out, n.Value), true
}

func (d *decoder) appendObject(out []byte, n *yaml.Node, key string, depth int) ([]byte, bool) {
	before := len(d.doc.faults) + d.doc.unlisted
	out = append(out, '{')
	comma := false
	d.entries(n, key, func(name string, _, value *yaml.Node) {
		if comma {
			out = append(out, ',')
		}
		comma = true
		out = append(appendString(out, name), ':')
		out, _ = d.appendJSON(out, value, join(key, name), depth+1)
	})
	return append(out, '}'), len(d.doc.faults)+d.doc.unlisted == before && !d.spent
}

func (d *decoder) appendArray(out []byte, n *yaml.Node, key string, depth int) ([]byte, bool) {
	all := true
	out = append(out, '[')
	for i, item := range n.Content {
		if i > 0 {
			out = append(out, ',')
		}
		var ok bool
		out, ok = d.appendJSON(out, item, indexed(key, i), depth+1)
		all = all && ok
	}
	return append(out, ']'), all
}

// isPlainText reports whether a JSON string has s as it is.
func isPlainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendString appends s as a JSON string without escapes for HTML.
func appendString(out []byte, s string) []byte {
	if isPlainText(s) { // as a rule
		return append(append(append(out, '"'), s...), '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // encoding a string cannot fail
	}
	return append(out, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// Whole returns the whole of data as JSON. It is for files of others, whose keys are not all known here.
func Whole(file string, data []byte, opts Options) (JSON, error) {
	doc := Parse(file, data, opts)
	if doc.root == nil {
		return nil, doc.Err()
	}
	walk := decoder{doc: doc}
	raw, _ := walk.appendJSON(nil, doc.root, "", 0)
	return raw, doc.Err()
}
