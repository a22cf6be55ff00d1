package rawjson

import (
	"bytes"
	stdjson "encoding/json"
)

// Head is what the beginning of a JSON-RPC message says of it.
type Head struct {
	ID, Method stdjson.RawMessage // as they are written; nil if they are not at the beginning
	Answers    bool               // a result or an error stands there
}

// ReadHead reads the members at the beginning of a message: those before its params, its result or its error, and before
// any other object or array. The rest may be missing or invalid, and costs nothing.
func ReadHead(raw []byte) (h Head) {
	c := checker{raw: raw}
	if c.space(); c.next() != '{' {
		return h
	}
	for next := byte(','); next == ','; next = c.next() {
		c.at++ // the bracket, or a comma
		c.space()
		begins := c.at
		if !c.key() {
			return h
		}
		key, _, _ := bytes.Cut(raw[begins+1:c.at], []byte(`"`)) // no key that is looked for has an escape
		c.space()
		begins = c.at
		switch first := c.next(); {
		case string(key) == "result", string(key) == "error":
			h.Answers = true
			return h
		case string(key) == "params", first == '{', first == '[', !c.begin():
			return h
		}
		value := raw[begins:c.at:c.at]
		if c.space(); c.next() != ',' && c.next() != '}' {
			return h // the value may go on
		}
		switch string(key) {
		case "id":
			h.ID = value
		case "method":
			h.Method = value
		}
	}
	return h
}

// next returns the next byte; 0 at the end.
func (c *checker) next() byte {
	if c.at == len(c.raw) {
		return 0
	}
	return c.raw[c.at]
}
