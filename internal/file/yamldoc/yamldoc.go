// Package yamldoc decodes YAML and JSON files into Go structs, strictly: it reports all faults of a
// file at once, each as FILE:LINE:COLUMN: key.path: message (SPEC B5). It does not know what the
// keys mean; its callers add their own faults to the same Doc.
//
// Its invariant: nothing in a file is lost silently. A key is decoded or causes a fault; a number
// keeps all its digits.
package yamldoc

import (
	"bytes"
	"cmp"
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

// MaxFile is the largest size of a file in bytes. A larger one is refused without being read.
const MaxFile = 1 << 20

// maxTagDirectives is how many %TAG directives a file may have.
const maxTagDirectives = 1000

// Options configures Decode. The zero value is for data that is a whole file.
type Options struct {
	// Position maps a position in data to the one in the file that data was taken from; lines and
	// columns count from 1. If nil, they are the same.
	Position func(line, column int) (int, int)
	// Refuse has keys of the top level that are not allowed, with the reasons, which become the messages
	// of their faults.
	Refuse map[string]string
	// Hide keeps the values of the file out of its faults. It is for files that contain secrets.
	Hide bool
	// MaxSize is the largest length of data in bytes. If 0, 1 MiB.
	MaxSize int
	// Reader wraps the reader that data is parsed from, so that an error from it can end the parsing. If
	// nil, it is not wrapped.
	Reader func(io.Reader) io.Reader
}

// Decode decodes data into v, a pointer to a struct. Keys are those of the fields' json tags,
// embedded structs are part of the struct that contains them, and a field without omitempty or
// omitzero is required. Fields that data does not mention keep their values. A type that implements
// json.Unmarshaler gets its subtree as compact JSON; a string type that implements Enum accepts only
// those values.
//
// The Doc is never nil. The error is its Err: nil or Faults, after which v may be set in part. file
// is used only in messages.
func Decode(file string, data []byte, v any, opts Options) (*Doc, error) {
	doc := Parse(file, data, opts)
	return doc, doc.Decode(v)
}

// Parse parses data without decoding it, for callers that must read some keys before they know what
// to decode the file into. If data cannot be parsed, the Doc has the faults.
func Parse(file string, data []byte, opts Options) *Doc {
	doc := &Doc{file: file, position: opts.Position, refuse: opts.Refuse, hide: opts.Hide}
	if !doc.readable(data, cmp.Or(opts.MaxSize, MaxFile)) {
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

// Empty reports whether the file was parsed and has no value.
func (d *Doc) Empty() bool { return d.empty }

// Decode decodes the file into v, as the function Decode does. It may be called once.
func (d *Doc) Decode(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("yamldoc: Decode into %T, want a pointer to a struct", v))
	}
	switch {
	case d.root == nil: // the faults are there already
	case d.root.Kind != yaml.MappingNode:
		d.fault(d.root, "", "the top level wants a mapping (key: value), got %s", d.describe(d.root, ""))
	default:
		walk := decoder{doc: d, refuse: d.refuse}
		walk.structure(d.root, target.Elem(), "", 0)
		d.decoded = len(d.faults)
	}
	return d.Err()
}

// readable reports whether data can be text, and adds a fault if not.
func (d *Doc) readable(data []byte, most int) bool {
	if len(data) > most {
		d.FaultAt(1, 1, "the file has %d bytes, more than the %d allowed", len(data), most)
		return false
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.FaultAt(line, column, "byte 0x%02x is not UTF-8; save the file as UTF-8", data[i])
			return false
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0 && r != 0x85:
			d.FaultAt(line, column, "control character %U is not allowed", r)
			return false
		case r == '\n':
			line, column = line+1, 0
		}
		column++
		i += size
	}
	return true
}

// parse returns the root of data's only document; nil if that is empty.
func (d *Doc) parse(data []byte, wrap func(io.Reader) io.Reader) (root *yaml.Node, ok bool) {
	// The parser is third-party code that reads untrusted input: a panic in it is reported as a fault of
	// the file, and does not end the process.
	defer func() {
		if r := recover(); r != nil {
			if d.hide {
				r = "its reason is not shown"
			}
			d.FaultAt(1, 1, "the YAML parser gave up: %v", r)
			root, ok = nil, false
		}
	}()
	if wrap == nil {
		if root := parseSimple(data); root != nil {
			return root, true
		}
	}
	if bytes.Count(data, []byte("%TAG")) > maxTagDirectives { // the parser compares each with all before it
		d.FaultAt(1, 1, "more than %d %%TAG directives are not supported", maxTagDirectives)
		return nil, false
	}
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

// syntaxFault turns an error of the parser into a fault. The text has a line for most errors and
// never a column.
func (d *Doc) syntaxFault(data []byte, err error) {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte("<<<<<<< ")) {
			d.FaultAt(i+1, 1, "a conflict of git begins here that is not resolved")
			return
		}
	}
	m := syntaxLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1]) // "" is line 0, which becomes 1 below
	msg := m[2]
	if strings.HasPrefix(msg, "did not find expected") {
		line++ // the parser counts these lines from 0, the scanner its own from 1
	}
	if a := unknownAnchor.FindStringSubmatch(msg); a != nil {
		if i := bytes.Index(data, []byte("*"+a[1])); i >= 0 {
			line = 1 + bytes.Count(data[:i], []byte("\n"))
		}
		if d.hide {
			msg = "what begins with * is an alias, and there is no anchor of that name; put text in quotes"
		}
	}
	line = min(max(line, 1), len(lines))
	if strings.HasPrefix(msg, "found a tab character") { // its line is that of the preceding token
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
	d.FaultAt(line, len(indent)+1, "%s", msg)
}

// bareQuestion matches an unquoted word that ends in ?, in braces or brackets.
var bareQuestion = regexp.MustCompile(`[\[{][^"']*[:,\[ ](\w+\?)[ \t]*[,}\]]`)

// syntaxHint says how to fix an error of the parser in a line.
func (d *Doc) syntaxHint(msg string, line []byte) string {
	question := bareQuestion.FindSubmatch(line)
	switch {
	case strings.HasPrefix(msg, "mapping values are not allowed"):
		return "; put a text that has a colon in quotes, or look at the indentation"
	case !strings.HasPrefix(msg, "did not find expected"):
		return ""
	case question != nil && d.hide:
		return "; inside of { } and [ ] a word that ends in ? needs quotes"
	case question != nil:
		return fmt.Sprintf("; put %q in quotes: inside of { } and [ ] a ? needs them", question[1])
	}
	return "; look at the indentation, quotes and brackets around here"
}

// indentOf returns the indentation of a line.
func indentOf(line []byte) []byte { return line[:len(line)-len(bytes.TrimLeft(line, " \t"))] }
