package control

import (
	"encoding/json"
	"strings"
)

// grep returns whether a line of the log has a text in its message, in the tool's name or in key=value of another
// member but the time and the level. Upper and lower case are the same.
func grep(text string) func(line []byte) bool {
	if text == "" {
		return func([]byte) bool { return true }
	}
	text = strings.ToLower(text)
	plain := strings.IndexFunc(text, func(r rune) bool {
		return r > '~' || r < ' ' || strings.ContainsRune(`"\\<>&=`, r)
	}) < 0
	return func(line []byte) bool {
		if plain && !containsFold(line, text) { // JSON has such a text as it is, so most lines need no decoding
			return false
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(line, &members) != nil {
			return false
		}
		for key, value := range members {
			var piece string
			if json.Unmarshal(value, &piece) != nil {
				piece = string(value)
			}
			switch key {
			case "time", "level":
				continue
			case "msg", "tool", "text":
			default:
				piece = key + "=" + piece
			}
			if strings.Contains(strings.ToLower(piece), text) {
				return true
			}
		}
		return false
	}
}

// containsFold reports whether a line has a text of ASCII in lower case, whatever the case of its own letters.
func containsFold(line []byte, text string) bool {
	for i := 0; i+len(text) <= len(line); i++ {
		n := 0
		for n < len(text) && lower(line[i+n]) == text[n] {
			n++
		}
		if n == len(text) {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
