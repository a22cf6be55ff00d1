package yamldoc

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
)

// asYAML converts a JSON document to YAML that the parser accepts, and returns other documents
// unchanged. Two escapes exist only in JSON: \/ and surrogate pairs.
func asYAML(data []byte) []byte {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || !bytes.ContainsAny(data, `\`) || !json.Valid(data) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		// In valid JSON, backslashes are only in strings, and never last.
		switch {
		case data[i] != '\\':
			out = append(out, data[i])
			i++
		case data[i+1] == '/':
			out = append(out, '/')
			i += 2
		case data[i+1] == 'u' && utf16.IsSurrogate(escaped(data[i:])):
			r := utf16.DecodeRune(escaped(data[i:]), escaped(data[i+6:]))
			out = append(out, string(r)...)
			i += 6
			if r != '\uFFFD' {
				i += 6
			}
		default:
			out = append(out, data[i:i+2]...)
			i += 2
		}
	}
	return out
}

// escaped returns the character of the \uXXXX that text begins with, or 0.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
