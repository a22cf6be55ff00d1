package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// RedactBody is RedactBytes for the answer of a service. JSON stays valid: strings are redacted in
// their decoded form, and a number that contains a value becomes a string.
func (r *Redactor) RedactBody(body []byte) []byte {
	switch {
	case r.isEmpty() || !r.holds(body):
		return body
	case !json.Valid(body):
		return r.RedactBytes(body)
	}
	out := make([]byte, 0, len(body))
	var plain []byte // buffer for the decoded strings
	left := maxSpans
	for at := 0; at < len(body); {
		end := tokenEnd(body, at)
		token := body[at:end]
		at = end
		text, isString := token, token[0] == '"'
		if isString {
			text = token[1 : len(token)-1]
			if bytes.IndexByte(text, '\\') >= 0 {
				plain = unescaped(slices.Grow(plain[:0], len(text)), text)
				text = plain
			}
		}
		if len(text) < minRedacted {
			out = append(out, token...)
			continue
		}
		clean, n, ok := r.clean(text, left)
		left -= n
		switch {
		case !ok:
			return []byte(`"` + redacted + `"`)
		case n == 0:
			out = append(out, token...)
		case isString:
			out = append(appendEscaped(append(out, '"'), clean), '"')
		default:
			out = append(out, `"`+redacted+`"`...)
		}
	}
	return out
}

// tokenEnd returns where the token of valid JSON at a position ends: a string, a number or a word,
// or else one byte.
func tokenEnd(body []byte, at int) int {
	if body[at] == '"' {
		for end := at + 1; ; end++ {
			switch body[end] {
			case '\\':
				end++
			case '"':
				return end + 1
			}
		}
	}
	end := at
	for end < len(body) && !strings.ContainsRune("{}[]:,\" \t\r\n", rune(body[end])) {
		end++
	}
	return max(end, at+1)
}

// appendEscaped appends a text to out as in a JSON string.
func appendEscaped(out, text []byte) []byte {
	at := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		out = append(out, text[at:i]...)
		at = i + 1
		switch b {
		case '"', '\\':
			out = append(out, '\\', b)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = fmt.Appendf(out, `\u%04x`, b)
		}
	}
	return append(out, text[at:]...)
}

// Of reports whether r is a Redactor for exactly these values.
func (r *Redactor) Of(values ...Value) bool { return r != nil && slices.Equal(r.values, values) }
