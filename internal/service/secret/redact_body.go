package secret

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// RedactBody is RedactBytes for what a service answers. What is JSON stays JSON:
// a string is redacted as the text that it is, and a number that holds a value
// becomes a string.
func (r *Redactor) RedactBody(body []byte) []byte {
	clean := r.RedactBytes(body)
	if r == nil || bytes.Equal(clean, body) || !json.Valid(body) {
		return clean
	}
	var out bytes.Buffer
	for at := 0; at < len(body); {
		end := tokenEnd(body, at)
		token := body[at:end]
		at = end
		if token[0] == '"' {
			out.Write(r.redactedString(token))
			continue
		}
		if text := string(token); r.Redact(text) != text {
			token = []byte(`"` + redacted + `"`)
		}
		out.Write(token)
	}
	return out.Bytes()
}

// tokenEnd is where the token of valid JSON ends that begins at a place: a string,
// a number or a word, or else one byte.
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

// redactedString is a string of JSON without what is secret in it.
func (r *Redactor) redactedString(token []byte) []byte {
	var text string
	if json.Unmarshal(token, &text) != nil {
		return token // a string of valid JSON always is one
	}
	clean := r.Redact(text)
	if clean == text {
		return token
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(clean) != nil {
		return []byte(`"` + redacted + `"`) // a string always encodes
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// Of reports whether r is a Redactor for exactly these values.
func (r *Redactor) Of(values ...Value) bool { return r != nil && slices.Equal(r.values, values) }
