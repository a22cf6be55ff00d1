package clients

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// ReadResult looks at what a capsule answered, in the turn of its caller if it is large. requires says that it
// is not a result yet, since it requires input; else answer is a CallToolResult. The error is the cause of ctx's
// end.
func ReadResult(ctx context.Context, result json.RawMessage, stateless bool) (answer json.RawMessage, requires bool, err error) {
	read := func() {
		if answer, requires = result, stateless && !isToolResult(result) && Requires(result); !requires {
			answer = asResult(result)
		}
	}
	if len(result) < turns.Heavy { // to look for the account takes longer
		read()
		return answer, requires, nil
	}
	err = turns.AccountOf(ctx).Work(ctx, len(result), read)
	return answer, requires, err
}

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
