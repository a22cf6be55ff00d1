package wire

import (
	"strings"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Quoted is a name of a client's in a text.
func Quoted(name string) string { return string(rawjson.Quote(Brief(name))) }

// Brief bounds what words that are not ours take in the log.
func Brief(text string) string { return cut(text, 4<<10) }

// BriefName bounds what the name of a tool takes in the log: that of no tool may be as long
// as its client likes.
func BriefName(name string) string { return cut(name, 128) }

func cut(text string, enough int) string {
	if len(text) <= enough {
		return text
	}
	return strings.ToValidUTF8(text[:enough], "") + "…"
}

// Shortened gives enough of a session's id to tell sessions apart in a log:
// the whole of it would let a reader of the log take the session over.
func Shortened(id string) string {
	const enough = 8
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
