package clientconf

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// MaxFile is the size in bytes over which a file is refused. Claude Code keeps
// much else beside its servers.
const MaxFile = 16 << 20

// maxDepth bounds how deep values may be nested in it.
const maxDepth = 10_000

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
	if rawjson.Deeper(s.data, maxDepth) {
		return node{}, yamldoc.Faults{s.fault(0, "", "is nested deeper than %d levels", maxDepth)}
	}
	root, err := hujson.Parse(s.data)
	if err != nil {
		return node{}, yamldoc.Faults{s.faultOf(err)}
	}
	return nodeOf(root), nil
}

// notJSON says where and why hujson could not read a text.
var notJSON = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^hujson: line (\d+), column (\d+): (.*)$`) })

// faultOf is what hujson says is wrong.
func (s *source) faultOf(err error) yamldoc.Fault {
	said := notJSON().FindStringSubmatch(err.Error())
	if said == nil {
		return s.fault(0, "", "is not JSON")
	}
	why := said[3]
	if literal := "invalid literal"; strings.HasPrefix(why, literal) {
		why = literal // which may be secret
	}
	line, _ := strconv.Atoi(said[1])   // digits
	column, _ := strconv.Atoi(said[2]) // in bytes
	return s.fault(s.lines[min(line, len(s.lines))-1]+column-1, "", "is not JSON: %s", why)
}

// kinds are the kinds of literals, by what they begin with.
var kinds = map[hujson.Kind]kind{'"': text, '0': number, 't': boolean, 'f': boolean, 'n': null}

// nodeOf returns a value of a file as a node.
func nodeOf(v hujson.Value) node {
	n := node{at: v.StartOffset}
	switch value := v.Value.(type) {
	case hujson.Literal:
		if n.kind = kinds[value.Kind()]; n.kind != null {
			n.text = value.String()
		}
	case *hujson.Array:
		n.kind = array
		for _, item := range value.Elements {
			n.items = append(n.items, nodeOf(item))
		}
	case *hujson.Object:
		n.kind = object
		indexes := map[string]int{} // in n.members, by name
		for _, of := range value.Members {
			name, _ := of.Name.Value.(hujson.Literal) // nothing else is read there
			m := member{name: name.String(), node: nodeOf(of.Value)}
			m.at = of.Name.StartOffset // a fault of a member points at its name
			if i, again := indexes[m.name]; again {
				n.members[i] = m // the last one holds, as in the clients
				continue
			}
			indexes[m.name] = len(n.members)
			n.members = append(n.members, m)
		}
	}
	return n
}
