package yamldoc

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// parseSimple parses a document as most descriptions of tools are: mappings in lines or in braces, with texts, whole
// numbers, true and false on one line each. It returns the nodes that the parser makes, in a tenth of the time; nil for
// all else, which may be a document or have faults.
func parseSimple(data []byte) *yaml.Node {
	for _, c := range data {
		if c != '\n' && (c < ' ' || c > '~') {
			return nil
		}
	}
	s := simpleDoc{rest: string(data)}
	s.next()
	if s.over || s.indent > 0 {
		return nil
	}
	root := s.block(0, 0)
	if root == nil || !s.over {
		return nil
	}
	return root
}

const (
	maxSimple = 20  // how deep a simple document may be nested
	maxWord   = 512 // the length of a key; YAML allows 1 024
)

// simpleDoc goes through the lines of a document.
type simpleDoc struct {
	rest   string // behind the line
	line   string
	number int // of the line, from 1
	indent int // of the line
	over   bool
}

// next goes to the next line that is not empty.
func (s *simpleDoc) next() {
	for {
		if s.rest == "" {
			s.line, s.over = "", true
			return
		}
		s.line, s.rest, _ = strings.Cut(s.rest, "\n")
		s.number++
		text := strings.TrimLeft(s.line, " ")
		if text != "" {
			s.indent = len(s.line) - len(text)
			return
		}
		if s.line != "" {
			s.line, s.rest, s.indent = "!", "", 0 // spaces alone are for the parser
			return
		}
	}
}

// block reads the mapping whose first line is the present one.
func (s *simpleDoc) block(indent, depth int) *yaml.Node {
	if depth > maxSimple {
		return nil
	}
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: s.number, Column: indent + 1}
	for !s.over && s.indent == indent {
		key, end := s.key(indent)
		if key == nil || end == len(s.line) || s.line[end] != ':' {
			return nil
		}
		var value *yaml.Node
		if end+1 == len(s.line) {
			s.next()
			if s.over || s.indent <= indent {
				return nil // null, or a list
			}
			value = s.block(s.indent, depth+1)
		} else {
			if s.line[end+1] != ' ' {
				return nil
			}
			value = s.inLine(end + 2)
			s.next()
		}
		if value == nil {
			return nil
		}
		m.Content = append(m.Content, key, value)
	}
	if !s.over && s.indent > indent {
		return nil // a text goes on, or an indentation is wrong
	}
	return m
}

// inLine reads the value that is the rest of the present line.
func (s *simpleDoc) inLine(at int) *yaml.Node {
	if at == len(s.line) {
		return nil
	}
	switch c := s.line[at]; {
	case c == '{', c == '[', c == '"':
		value, end := s.flow(at, 0)
		if end != len(s.line) {
			return nil
		}
		return value
	case strings.ContainsAny(s.line[at:], ":#"):
		return nil
	}
	return s.scalar(at, len(s.line))
}

// flow reads a value in braces or brackets, one in double quotes, or a word of such a value, and returns where it ends;
// nil if it is not simple.
func (s *simpleDoc) flow(at, depth int) (value *yaml.Node, end int) {
	if at >= len(s.line) || depth > maxSimple {
		return nil, 0
	}
	switch s.line[at] {
	case '"':
		length := strings.IndexAny(s.line[at+1:], `"\`)
		if length < 0 || s.line[at+1+length] == '\\' {
			return nil, 0
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Tag: "!!str", Value: strings.Clone(s.line[at+1 : at+1+length]), Line: s.number, Column: at + 1}, at + length + 2
	case '{':
		return s.items(&yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Tag: "!!map", Line: s.number, Column: at + 1}, '}', depth)
	case '[':
		return s.items(&yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Tag: "!!seq", Line: s.number, Column: at + 1}, ']', depth)
	}
	length := strings.IndexAny(s.line[at:], `,{}[]:#?"'&*!|>%@`+"`")
	if length < 0 || !strings.ContainsRune(",}]", rune(s.line[at+length])) {
		return nil, 0
	}
	return s.scalar(at, at+length), at + length
}

// items reads what is in braces or brackets.
func (s *simpleDoc) items(into *yaml.Node, closing byte, depth int) (*yaml.Node, int) {
	at := into.Column
	if at < len(s.line) && s.line[at] == closing {
		return into, at + 1
	}
	for {
		if closing == '}' {
			key, end := s.key(at)
			if key == nil || !strings.HasPrefix(s.line[end:], ": ") {
				return nil, 0
			}
			into.Content = append(into.Content, key)
			at = end + 2
		}
		value, end := s.flow(at, depth+1)
		if value == nil || end >= len(s.line) {
			return nil, 0
		}
		into.Content = append(into.Content, value)
		switch {
		case s.line[end] == closing:
			return into, end + 1
		case !strings.HasPrefix(s.line[end:], ", "):
			return nil, 0
		}
		at = end + 2
	}
}

// key reads the key at a place of the line, and returns where it ends; nil if it is not simple.
func (s *simpleDoc) key(at int) (*yaml.Node, int) {
	end := wordEnd(s.line, at)
	key := s.scalar(at, end)
	if key == nil || key.Tag != "!!str" || end-at > maxWord {
		return nil, 0
	}
	return key, end
}

// scalar is the text between two places of the line, if it is clear what it is.
func (s *simpleDoc) scalar(at, end int) *yaml.Node {
	tag := simpleTag(s.line[at:end])
	if tag == "" {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: strings.Clone(s.line[at:end]), Line: s.number, Column: at + 1}
}

// wordEnd is where a word ends that begins at a place of a line.
func wordEnd(line string, at int) int {
	for at < len(line) && (isLetter(line[at]) || line[at] >= '0' && line[at] <= '9' || line[at] == '_' || line[at] == '-') {
		at++
	}
	return at
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// unclear are words that mean something else than themselves to some parsers, in lower case.
var unclear = []string{"y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf"}

// simpleTag is the tag of a text without quotes; "" if it is not clear.
func simpleTag(text string) string {
	switch {
	case text == "":
		return ""
	case text == "true", text == "false":
		return "!!bool"
	case isNumber(text):
		return "!!int"
	case isVersion(text):
		return "!!str"
	case !isLetter(text[0]), text[len(text)-1] == ' ':
		return ""
	case len(text) <= len("false") && slices.Contains(unclear, strings.ToLower(text)):
		return ""
	}
	return "!!str"
}

// isNumber reports whether a text is a small whole number, as it is written in every language.
func isNumber(text string) bool {
	return len(text) <= 9 && (text[0] != '0' || len(text) == 1) && strings.Trim(text, "0123456789") == ""
}

// isVersion reports whether a text is three numbers or more with dots between them, such as 1.2.3.
func isVersion(text string) bool {
	dots, digit := 0, false
	for _, c := range []byte(text) {
		switch {
		case c >= '0' && c <= '9':
			digit = true
		case c == '.' && digit:
			dots, digit = dots+1, false
		default:
			return false
		}
	}
	return digit && dots > 1
}
