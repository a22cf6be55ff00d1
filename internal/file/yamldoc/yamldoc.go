// Package yamldoc decodes YAML and JSON files into Go structs, strictly: every
// fault of a file is reported at once, each as FILE:LINE:COLUMN: key.path: what
// is wrong (SPEC B5). It knows nothing of what the keys mean; that is for its
// callers, who add their own faults to the same Doc.
//
// Its invariant: nothing in a file is lost silently. A key is decoded, or it
// is a fault; a number keeps every digit.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// MaxFile is the size in bytes over which a file is refused unread.
const MaxFile = 1 << 20

// Options adjusts Decode. The zero value decodes a file of its own.
type Options struct {
	// Position maps a place in data to the place in the file that data was
	// taken from; lines and columns count from 1. If nil, they are the same.
	Position func(line, column int) (int, int)
	// Refuse maps keys of the top level that must not be given to the reason
	// why, which becomes their fault.
	Refuse map[string]string
	// Hide keeps the values that the file gives out of its faults. It is for
	// files that hold secrets.
	Hide bool
	// MaxSize is how many bytes data may have. If 0, they are 1 MiB.
	MaxSize int
	// Reader wraps the reader that data is parsed from, so that a parse can be
	// ended by an error. If nil, none does.
	Reader func(io.Reader) io.Reader
}

// Decode decodes data into v, a pointer to a struct. Keys are those of the
// fields' json tags, embedded structs are part of the one that holds them, and
// a field without omitempty or omitzero is required. What data does not mention keeps its
// value. A type that implements json.Unmarshaler gets its subtree as compact
// JSON; a string type that implements Enum takes only those values.
//
// The Doc is never nil. The error is its Err: nil or Faults, after which v may
// be filled in part. file is used in messages alone.
func Decode(file string, data []byte, v any, opts Options) (*Doc, error) {
	doc := Parse(file, data, opts)
	return doc, doc.Decode(v)
}

// Parse reads data and decodes nothing yet, for whoever has to know what a file
// says before it is known what to decode it into. A Doc that could not be
// parsed has its faults already.
func Parse(file string, data []byte, opts Options) *Doc {
	doc := &Doc{file: file, position: opts.Position, refuse: opts.Refuse, hide: opts.Hide}
	most := MaxFile
	if opts.MaxSize > 0 {
		most = opts.MaxSize
	}
	if !doc.readable(data, most) {
		return doc
	}
	root, ok := doc.parse(data, opts.Reader)
	if !ok {
		return doc
	}
	if root == nil || isNull(root) {
		doc.empty = true
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1}
	}
	doc.root = root
	return doc
}

// Empty reports whether the file was parsed and says nothing.
func (d *Doc) Empty() bool { return d.empty }

// Decode decodes the file into v, as the function of that name does. It may be
// called once.
func (d *Doc) Decode(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("yamldoc: Decode into %T, want a pointer to a struct", v))
	}
	switch {
	case d.root == nil: // it has its faults
	case d.root.Kind != yaml.MappingNode:
		d.fault(d.root, "", "the top level wants a mapping (key: value), got %s", d.describe(d.root, ""))
	default:
		walk := decoder{doc: d, refuse: d.refuse}
		walk.structure(d.root, target.Elem(), "", 0)
		d.decoded = len(d.faults)
	}
	return d.Err()
}

// readable reports whether data can be text at all, and faults it if not.
func (d *Doc) readable(data []byte, most int) bool {
	if len(data) > most {
		d.faultAt(1, 1, "", "the file has %d bytes, more than the %d allowed", len(data), most)
		return false
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.faultAt(line, column, "", "byte 0x%02x is not UTF-8; save the file as UTF-8", data[i])
			return false
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0 && r != 0x85:
			d.faultAt(line, column, "", "control character %U is not allowed", r)
			return false
		case r == '\n':
			line, column = line+1, 0
		}
		column++
		i += size
	}
	return true
}

// parse returns the root of data's only document, nil for an empty one.
func (d *Doc) parse(data []byte, wrap func(io.Reader) io.Reader) (root *yaml.Node, ok bool) {
	// The parser is not ours and reads what strangers write: a panic in it is
	// a fault of the file, not the end of the process.
	defer func() {
		if r := recover(); r != nil {
			if d.hide {
				r = "its reason is not shown"
			}
			d.faultAt(1, 1, "", "the YAML parser gave up: %v", r)
			root, ok = nil, false
		}
	}()
	var text io.Reader = bytes.NewReader(asYAML(data))
	if wrap != nil {
		text = wrap(text)
	}
	dec := yaml.NewDecoder(text)
	var first, second yaml.Node
	if err := dec.Decode(&first); errors.Is(err, io.EOF) {
		return nil, true
	} else if err != nil {
		d.syntaxFault(data, err)
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		d.fault(&second, "", "a second document begins here; a file holds one")
		return nil, false
	case !errors.Is(err, io.EOF):
		d.syntaxFault(data, err)
		return nil, false
	}
	if len(first.Content) == 0 {
		return nil, true
	}
	return first.Content[0], true
}

var (
	syntaxLine    = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s:(.*))$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxFault turns the parser's text into a fault. The text has a line for
// most errors and never a column.
func (d *Doc) syntaxFault(data []byte, err error) {
	m := syntaxLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1]) // "" is line 0, which becomes 1 below
	msg := m[2]
	if strings.HasPrefix(msg, "did not find expected") {
		line++ // the parser counts these from 0, the scanner its own from 1
	}
	if a := unknownAnchor.FindStringSubmatch(msg); a != nil {
		if i := bytes.Index(data, []byte("*"+a[1])); i >= 0 {
			line = 1 + bytes.Count(data[:i], []byte("\n"))
		}
		if d.hide {
			msg = "what begins with * is an alias, and there is no anchor of that name; put text in quotes"
		}
	}
	lines := bytes.Split(data, []byte("\n"))
	line = min(max(line, 1), len(lines))
	if strings.HasPrefix(msg, "found a tab character") { // its line is that of what stands before
		for i := line - 1; i < len(lines); i++ {
			if bytes.ContainsRune(indentOf(lines[i]), '\t') {
				line = i + 1
				break
			}
		}
	}
	msg += d.syntaxHint(msg, lines[line-1])
	indent := indentOf(lines[line-1])
	if bytes.ContainsRune(indent, '\t') {
		msg += "; YAML is indented with spaces, and this line begins with a tab"
	}
	d.faultAt(line, len(indent)+1, "", "%s", msg)
}

// bareQuestion is a word with a ? at its end that is not in quotes, in braces or brackets.
var bareQuestion = regexp.MustCompile(`[\[{][^"']*[:,\[ ](\w+\?)[ \t]*[,}\]]`)

// syntaxHint says what to do about an error of the parser in a line.
func (d *Doc) syntaxHint(msg string, line []byte) string {
	question := bareQuestion.FindSubmatch(line)
	switch {
	case strings.HasPrefix(msg, "mapping values are not allowed"):
		return "; put a text that has a colon in quotes, or look at the indentation"
	case !strings.HasPrefix(msg, "did not find expected"):
		return ""
	case question != nil && !d.hide:
		return fmt.Sprintf("; put %q in quotes: inside of { } and [ ] a ? needs them", question[1])
	}
	return "; look at the indentation, quotes and brackets around here"
}

// indentOf is what a line begins with.
func indentOf(line []byte) []byte { return line[:len(line)-len(bytes.TrimLeft(line, " \t"))] }
