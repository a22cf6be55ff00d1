package capsule

import (
	"encoding/json"
	"slices"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// asResult returns what a capsule answered as a CallToolResult. It returns a CallToolResult
// unchanged; any other JSON value becomes the text of one (SPEC D7).
func asResult(result json.RawMessage) json.RawMessage {
	if isToolResult(result) {
		return result
	}
	text := result
	if len(result) == 0 || result[0] != '"' {
		text = rawjson.Quote(string(result))
	}
	return slices.Concat([]byte(`{"content":[{"type":"text","text":`), text, []byte(`}]}`))
}

// isToolResult reports whether a result has content that is a list of objects
// with a type, as every CallToolResult has.
func isToolResult(result json.RawMessage) bool {
	content, found := rawjson.After(result, "content")
	return found && rawjson.Elements(content, isContent)
}

func isContent(value json.RawMessage) bool {
	typed := false
	rawjson.Members(value, func(key []byte, value json.RawMessage) bool {
		typed = typed || string(key) == "type" && len(value) > 2 && value[0] == '"'
		return !typed
	})
	return typed
}
