package clientconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/yamldoc"
)

// MaxFile is the size in bytes over which a file is refused. Claude Code keeps
// much else beside its servers.
const MaxFile = 16 << 20

// kind is what a node is, as messages have it.
type kind string

const (
	object  kind = "an object"
	array   kind = "an array"
	text    kind = "a string"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
)

// node is a value of a file, and where it stands.
type node struct {
	at      int // offset in bytes
	kind    kind
	text    string   // of a string, a number, true and false
	members []member // no two of one name
	items   []node
}

// member is one of an object's.
type member struct {
	name string
	node
}

// member returns the one of that name.
func (n node) member(name string) (node, bool) {
	for _, m := range n.members {
		if m.name == name {
			return m.node, true
		}
	}
	return node{}, false
}

// String is a value as a message may show it. What is long may be a secret.
func (n node) String() string {
	if n.kind != text || len(n.text) > 20 {
		return string(n.kind)
	}
	return fmt.Sprintf("%q", n.text)
}

// source is the text of a file.
type source struct {
	file  string
	data  []byte
	lines []int // where each line begins
}

func newSource(file string, data []byte) *source {
	data, _ = bytes.CutPrefix(data, []byte("\ufeff")) // as Windows' editors begin a file
	s := &source{file: file, data: data, lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// fault is what is wrong at an offset.
func (s *source) fault(at int, key, format string, args ...any) yamldoc.Fault {
	at = min(max(at, 0), len(s.data))
	line := sort.SearchInts(s.lines, at+1)
	column := 1 + utf8.RuneCount(s.data[s.lines[line-1]:at])
	return yamldoc.Fault{File: s.file, Line: line, Column: column, Key: key, Msg: fmt.Sprintf(format, args...)}
}

// parse reads the whole text. Messages show a character of it at most, since
// the rest may be secret.
func (s *source) parse() (node, error) {
	if len(s.data) > MaxFile {
		return node{}, yamldoc.Faults{s.fault(0, "", "the file has %d bytes, more than the %d allowed", len(s.data), MaxFile)}
	}
	for at := 0; at < len(s.data); {
		r, size := utf8.DecodeRune(s.data[at:])
		if r == utf8.RuneError && size == 1 {
			return node{}, yamldoc.Faults{s.fault(at, "", "byte 0x%02x is not UTF-8; save the file as UTF-8", s.data[at])}
		}
		at += size
	}
	if len(bytes.TrimSpace(s.data)) == 0 {
		return node{}, yamldoc.Faults{s.fault(0, "", "the file is empty")}
	}
	data, open := plain(s.data)
	if open >= 0 {
		return node{}, yamldoc.Faults{s.fault(open, "", "the comment that begins here does not end")}
	}
	// Valid as a whole, and not too deep, before it is walked.
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		at, why := len(data), err.Error()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && int(syntax.Offset) < len(data) {
			at = int(syntax.Offset) - 1
		}
		if r, size := utf8.DecodeRune(data[at:]); size > 1 { // the error speaks of bytes
			why = fmt.Sprintf("invalid character %q", r)
		}
		return node{}, yamldoc.Faults{s.fault(at, "", "is no JSON: %s", why)}
	}
	w := walk{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	w.decoder.UseNumber()
	return w.value(), nil
}

// plain is JSON with comments and trailing commas as plain JSON of the same
// length: what is not JSON becomes spaces. If a comment does not end, open is
// where it begins, else -1.
func plain(data []byte) (out []byte, open int) {
	out = bytes.Clone(data)
	last := -1 // the last byte that is neither space nor comment
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == ' ', c == '\t', c == '\r', c == '\n':
			continue
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end := commentEnd(out[i:])
			if end < 0 {
				return out, i
			}
			blank(out[i : i+end])
			i += end - 1
			continue
		case c == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case (c == '}' || c == ']') && last > 0 && out[last] == ',' && !startsList(out[:last]):
			out[last] = ' '
		}
		last = i
	}
	return out, -1
}

// commentEnd returns how long the comment is that data begins with, or -1.
func commentEnd(data []byte) int {
	if data[1] == '/' {
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			return end
		}
		return len(data)
	}
	end := bytes.Index(data[2:], []byte("*/"))
	if end < 0 {
		return -1
	}
	return end + 4
}

// blank makes spaces of all but line ends.
func blank(data []byte) {
	for i, c := range data {
		if c != '\n' && c != '\r' {
			data[i] = ' '
		}
	}
}

// startsList reports whether no element stands before a comma, which then
// trails nothing.
func startsList(data []byte) bool {
	data = bytes.TrimRight(data, " \t\r\n")
	return len(data) == 0 || bytes.IndexByte([]byte("[{,:"), data[len(data)-1]) >= 0
}

// walk makes nodes of valid JSON.
type walk struct {
	data    []byte
	decoder *json.Decoder
}

// token returns the next token and where it stands.
func (w *walk) token() (json.Token, int) {
	at := int(w.decoder.InputOffset())
	for at < len(w.data) && bytes.IndexByte([]byte(" \t\r\n,:"), w.data[at]) >= 0 {
		at++
	}
	token, err := w.decoder.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		panic(fmt.Sprintf("clientconf: valid JSON cannot be read: %v", err))
	}
	return token, at
}

// value reads the value that comes next.
func (w *walk) value() node {
	token, at := w.token()
	switch t := token.(type) {
	case string:
		return node{at: at, kind: text, text: t}
	case json.Number:
		return node{at: at, kind: number, text: t.String()}
	case bool:
		return node{at: at, kind: boolean, text: fmt.Sprint(t)}
	case json.Delim:
		if t == '[' {
			n := node{at: at, kind: array}
			for w.decoder.More() {
				n.items = append(n.items, w.value())
			}
			w.token()
			return n
		}
		n := node{at: at, kind: object}
		places := map[string]int{} // in n.members, by name
		for w.decoder.More() {
			name, at := w.token()
			own, _ := name.(string) // valid JSON has nothing else there
			m := member{name: own, node: w.value()}
			m.at = at // a fault of a member points at its name
			if place, again := places[own]; again {
				n.members[place] = m // the last one holds, as in the clients
				continue
			}
			places[own] = len(n.members)
			n.members = append(n.members, m)
		}
		w.token()
		return n
	}
	return node{at: at, kind: null}
}
