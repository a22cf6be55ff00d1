package wire

import (
	"strings"

	"github.com/orla-project/orla/internal/rawjson"
)

// Quoted is a name of a client's in a text.
func Quoted(name string) string { return string(rawjson.Quote(Brief(name))) }

// Brief bounds what a client's words, such as the name of no tool, take in the log.
func Brief(text string) string {
	const enough = 4 << 10
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
