// Package rawjson looks into JSON without decoding it, so that a payload can be
// passed on as the bytes that it came in.
//
// Everything but Check, Valid and Deeper wants valid JSON and returns parts of what it was given.
package rawjson

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"unsafe"

	"github.com/segmentio/encoding/json"
)

// Decode decodes raw, which must be valid, with numbers as json.Number.
func Decode(raw []byte) (value any, err error) {
	if Deeper(raw, maxDepth) {
		d := stdjson.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		err = d.Decode(&value)
		return value, err
	}
	_, err = json.Parse(raw, &value, json.UseNumber)
	return value, err
}

// Encode returns v as JSON without the escapes for HTML that json.Marshal writes.
func Encode(v any) (stdjson.RawMessage, error) {
	line, err := Line(v)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// Line is Encode with the end of a line.
func Line(v any) ([]byte, error) {
	var out bytes.Buffer
	e := stdjson.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
}

// Deeper reports whether raw, which need not be valid, may be nested deeper than
// levels. Of valid JSON it is certain.
func Deeper(raw []byte, levels int) bool {
	if bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) <= levels {
		return false // to count is much faster than to follow
	}
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth++; depth > levels {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

// Values returns how many values there are at most in a value, at any depth, itself
// included. raw must be valid JSON.
func Values(raw []byte) int {
	n := 1
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case ',', '[', '{':
			n++
		}
		i++
	}
	return n
}

// What a decoded value takes in memory, in bytes, beside its text, and an object or an array
// besides. It was measured.
const (
	perValue  = 64
	perNested = 256
)

// Weight returns about how many bytes a value takes once it is decoded. raw must be valid JSON.
func Weight(raw []byte) int64 {
	n := int64(len(raw)) + perValue
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '{', '[':
			n += perValue + perNested
		case ',':
			n += perValue
		}
		i++
	}
	return n
}

// String returns the text of a JSON string without escapes; "" for all else.
func String(value []byte) string {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return ""
	}
	return string(value[1 : len(value)-1])
}

// View returns bytes as a text, without a copy: nobody may change them while it is used.
func View(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// Bytes returns the bytes of a text, without a copy: nobody may change them.
func Bytes(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// Quote returns a text as a JSON string, byte for byte as encoding/json writes it.
func Quote(text string) stdjson.RawMessage {
	return AppendQuote(make([]byte, 0, QuotedSize(len(text))), text)
}

// AppendQuote appends a text to out as Quote writes it.
func AppendQuote(out []byte, text string) []byte {
	return json.AppendEscape(out, text, json.EscapeHTML)
}

// QuotedSize is how many bytes a text of size bytes takes in JSON, as a rule at most.
func QuotedSize(size int) int { return size + size/16 + len(`""`) }

// Pair returns an object of one member, a text.
func Pair(key, text string) stdjson.RawMessage {
	return Must(map[string]string{key: text})
}

// Must returns the JSON of a value that always has one, such as strings and JSON. It panics for any other.
func Must(v any) stdjson.RawMessage {
	raw, err := stdjson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// Members calls each with the members of a JSON object, in order, until it
// returns false. It reports whether raw is an object whose keys have no escapes
// and each never returned false.
func Members(raw []byte, each func(key []byte, value stdjson.RawMessage) bool) bool {
	return members(raw, false, each)
}

// AllMembers is Members for keys with escapes as well, which it decodes. It reports
// whether raw is an object and each never returned false.
func AllMembers(raw []byte, each func(key []byte, value stdjson.RawMessage) bool) bool {
	return members(raw, true, each)
}

func members(raw []byte, escapes bool, each func(key []byte, value stdjson.RawMessage) bool) bool {
	i := skipSpace(raw, 0)
	if raw[i] != '{' {
		return false
	}
	if i = skipSpace(raw, i+1); raw[i] == '}' {
		return true
	}
	for {
		end := skipString(raw, i)
		key := raw[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			if !escapes {
				return false
			}
			key = unescaped(raw[i:end])
		}
		start := skipSpace(raw, skipSpace(raw, end)+1) // over the colon
		end = skipValue(raw, start)
		if !each(key, raw[start:end:end]) {
			return false
		}
		if i = skipSpace(raw, end); raw[i] == '}' {
			return true
		}
		i = skipSpace(raw, i+1) // over the comma
	}
}

// unescaped is the text of a JSON string, in memory of its own.
func unescaped(raw []byte) []byte {
	var text string
	if err := stdjson.Unmarshal(raw, &text); err != nil { // it is valid
		panic(err)
	}
	return []byte(text)
}

// Count returns how many members an object has, whatever their keys are; 0 for what is
// not an object. raw must be valid JSON.
func Count(raw []byte) (n int) {
	i := skipSpace(raw, 0)
	if raw[i] != '{' {
		return 0
	}
	if i = skipSpace(raw, i+1); raw[i] == '}' {
		return 0
	}
	for {
		n++
		i = skipSpace(raw, skipSpace(raw, skipString(raw, i))+1) // over the colon
		if i = skipSpace(raw, skipValue(raw, i)); raw[i] == '}' {
			return n
		}
		i = skipSpace(raw, i+1) // over the comma
	}
}

// After returns raw, an object, from where the value of a key's first member begins,
// with all that follows. It reports false when there is none, or a key before it has
// escapes.
func After(raw []byte, wanted string) (rest []byte, ok bool) {
	i := skipSpace(raw, 0)
	if raw[i] != '{' {
		return nil, false
	}
	for raw[i] != '}' {
		i = skipSpace(raw, i+1) // over the brace, or the comma
		if raw[i] == '}' {
			return nil, false
		}
		end := skipString(raw, i)
		key := raw[i+1 : end-1]
		i = skipSpace(raw, skipSpace(raw, end)+1) // over the colon
		switch {
		case string(key) == wanted:
			return raw[i:], true
		case bytes.IndexByte(key, '\\') >= 0:
			return nil, false
		}
		i = skipSpace(raw, skipValue(raw, i))
	}
	return nil, false
}

// Elements calls each with the elements of a JSON array, in order, until it
// returns false. It reports whether raw is an array and each never returned false.
// What follows the array is not looked at.
func Elements(raw []byte, each func(value stdjson.RawMessage) bool) bool {
	i := skipSpace(raw, 0)
	if raw[i] != '[' {
		return false
	}
	if i = skipSpace(raw, i+1); raw[i] == ']' {
		return true
	}
	for {
		end := skipValue(raw, i)
		if !each(raw[i:end:end]) {
			return false
		}
		if i = skipSpace(raw, end); raw[i] == ']' {
			return true
		}
		i = skipSpace(raw, i+1) // over the comma
	}
}

// IsObject reports whether raw is an object.
func IsObject(raw []byte) bool { return len(raw) > 0 && raw[skipSpace(raw, 0)] == '{' }

// Empty reports whether an object has no members.
func Empty(object []byte) bool { return object[skipSpace(object, 1)] == '}' }

// Compact returns raw on one line: itself when it is on one already.
func Compact(raw []byte) stdjson.RawMessage {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	var out bytes.Buffer
	out.Grow(len(raw))
	if err := stdjson.Compact(&out, raw); err != nil { // it is valid
		panic(err)
	}
	return out.Bytes()
}

// The functions below return the index behind what begins at i.

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// skipString goes from quote to quote, which is what a long text has few of.
func skipString(raw []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(raw[i:], '"')
		escapes := 0
		for raw[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func skipValue(raw []byte, i int) int {
	for depth := 0; ; {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default: // a number, true, false or null
			for i < len(raw) && !strings.ContainsRune(",:]} \t\n\r", rune(raw[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}
