package capsule

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/tail"
)

// asResult makes a CallToolResult of what a capsule answered: a result that is
// one passes through whole, any other JSON value is the text (SPEC D7).
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
	rawjson.Members(value, func(key string, value json.RawMessage) bool {
		typed = typed || key == "type" && len(value) > 2 && value[0] == '"'
		return !typed
	})
	return typed
}

// lastStderr is what the capsule printed last on stderr, short enough for an error.
func (c *Capsule) lastStderr() string {
	const lines, size = 10, 2 << 10
	all := strings.ToValidUTF8(strings.Join(c.stderr.Last(lines), "\n"), "\uFFFD")
	if len(all) > size {
		all = "…" + strings.ToValidUTF8(all[len(all)-size:], "")
	}
	return all
}

// maxStderrLine bounds a line of stderr in bytes. What is over is dropped, and said.
const maxStderrLine = 64 << 10

// logStderr logs one line of stderr as it is, but for secrets, and keeps it (SPEC D5).
func (c *Capsule) logStderr(pid int, line []byte, dropped int) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if dropped > 0 {
		line = append(bytes.Clone(line), tail.CutMark(dropped)...)
	}
	line = c.clean(line)
	c.stderr.Append(line)
	c.log.Info("stderr", "tool", c.tool.Name, "stream", "stderr", "pid", pid, "text", string(line))
}
