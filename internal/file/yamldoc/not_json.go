package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// NotJSON returns the fault of a file that is not JSON, or nil. The decoder also accepts YAML, but
// other readers of the file would not.
func NotJSON(file string, data []byte) error {
	if len(data) > MaxFile || !utf8.Valid(data) {
		return nil // Decode reports it
	}
	text := bytes.TrimPrefix(data, byteOrderMark)
	var whole json.RawMessage
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &whole))
	if !ok {
		return nil
	}
	// The offset is the number of bytes read, including the invalid one.
	before := text[:max(0, min(int(syntax.Offset)-1, len(text)))]
	if strings.HasPrefix(syntax.Error(), "unexpected end") {
		before = bytes.TrimRight(text, " \t\r\n") // the text ends too early, so no byte is invalid
	}
	line := bytes.Count(before, []byte("\n"))
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return Faults{{File: file, Line: line + 1, Column: column + 1, Msg: fmt.Sprintf("is not JSON: %v", syntax)}}
}
