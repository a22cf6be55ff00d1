package wire

import (
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// Quoted returns a name that a client gave, bounded and in quotes, for a text.
func Quoted(name string) string { return string(rawjson.Quote(Brief(name))) }

// Brief bounds a text in the log that Orla did not write.
func Brief(text string) string { return brief.Cut(text, 4<<10) }

// BriefName bounds the name of a tool in the log, and the code of its error: a client may call a tool that does
// not exist, by a name of any length.
func BriefName(name string) string { return brief.Cut(name, 128) }

// Shortened returns the beginning of a session's id, which is enough to distinguish sessions in the
// log. With the whole id, a reader of the log could take the session over.
func Shortened(id string) string {
	const enough = 8
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
