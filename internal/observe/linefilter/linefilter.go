// Package linefilter selects lines of the JSON log by what they say.
package linefilter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Levels are those of the log, from the least on.
func Levels() []string { return []string{"debug", "info", "warn", "error", "fatal"} }

// Filter says which lines are selected. Its zero value selects all.
type Filter struct {
	Level  string // one of Levels: lines of it and above
	Stream string // stdout or stderr: what a tool printed there
	Grep   string // lines that have this text; see grep
}

// Func returns whether a line is selected; nil if all are.
func (f Filter) Func() func(line []byte) bool {
	if f == (Filter{}) {
		return nil
	}
	has, least := grep(f.Grep), atLeast(f.Level)
	return func(line []byte) bool {
		if !has(line) {
			return false
		}
		if f.Level == "" && f.Stream == "" {
			return true
		}
		level, stream, ok := said(line, f.Stream != "")
		return ok && (f.Level == "" || slices.Contains(least, strings.ToLower(string(level)))) && (f.Stream == "" || string(stream) == f.Stream)
	}
}

// atLeast lists the levels from one on.
func atLeast(level string) []string {
	all := Levels()
	return all[max(0, slices.Index(all, level)):]
}

// said returns the level of a line, and the stream if it is wanted; false if the line is not JSON. Orla's own lines begin
// with texts, among them these: to decode all of each line would cost as much as to log it.
func said(line []byte, streamToo bool) (level, stream []byte, ok bool) {
	for rest := line; rest != nil; {
		var key, value []byte
		switch key, value, rest = member(rest); string(key) {
		case "level":
			level = value
		case "stream":
			stream = value
		}
		if level != nil && (stream != nil || !streamToo) {
			return level, stream, true
		}
	}
	var all struct{ Level, Stream string }
	ok = json.Unmarshal(line, &all) == nil
	return []byte(all.Level), []byte(all.Stream), ok
}

// member returns the next member of an object, if its value is a text without escapes and it is written as Orla writes
// it, and what follows; nil for any other.
func member(text []byte) (key, value, rest []byte) {
	if len(text) < 2 || text[0] != '{' && text[0] != ',' || text[1] != '"' {
		return nil, nil, nil
	}
	key, text, _ = bytes.Cut(text[2:], []byte(`":"`))
	value, rest, ok := bytes.Cut(text, []byte(`"`))
	if !ok || bytes.ContainsAny(key, `"\`) || bytes.IndexByte(value, '\\') >= 0 {
		return nil, nil, nil
	}
	return key, value, rest
}

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

// containsFold reports whether a line has a text of ASCII in lower case, whatever the case of its own letters. Its time is that of
// the line, whatever the text is: the line is not written before all who follow the log have looked at it.
func containsFold(line []byte, text string) bool {
	small := make([]byte, len(line))
	for i, c := range line {
		small[i] = lower(c)
	}
	return bytes.Contains(small, []byte(text))
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
