package wire

import (
	"strings"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Quoted returns a name that a client gave, bounded and in quotes, for a text.
func Quoted(name string) string { return string(rawjson.Quote(Brief(name))) }

// Brief bounds a text in the log that Orla did not write.
func Brief(text string) string { return cut(text, 4<<10) }

// BriefName bounds the name of a tool in the log: a client may call a tool that does not exist, by a
// name of any length.
func BriefName(name string) string { return cut(name, 128) }

func cut(text string, enough int) string {
	if len(text) <= enough {
		return text
	}
	return strings.ToValidUTF8(text[:enough], "") + "…"
}

// Shortened returns the beginning of a session's id, which is enough to distinguish sessions in the
// log. With the whole id, a reader of the log could take the session over.
func Shortened(id string) string {
	const enough = 8
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
