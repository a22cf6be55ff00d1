package yamldoc

import (
	"bytes"
	"slices"
)

// Document is one of the documents of a YAML file.
type Document struct {
	Data []byte
	Line int // of the file, where Data begins; from 1
}

// Position maps a place in Data to one in the file. It is for Options.
func (d Document) Position(line, column int) (int, int) { return d.Line - 1 + line, column }

// Documents splits a file where a line "---" begins a document, or "..." ends
// one. Comments and directives above a "---" belong to the document below it.
// No text of YAML, quoted or not, can hold such a line, and it looks at nothing
// else: a document that cannot be parsed takes none of the others with it.
// There are at most that many; more is the line of the first that is left out, or 0.
func Documents(data []byte, most int) (list []Document, more int) {
	begin, first := 0, 1 // of the document that is being read: its byte and its line
	says := false        // whether it has more than comments and directives
	end := func(at, line int) {
		if says {
			list = append(list, Document{Data: data[begin:at], Line: first})
		}
		begin, first, says = at, line, false
	}
	for at, line := 0, 1; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		text := data[at:next]
		if at == 0 {
			text = bytes.TrimPrefix(text, byteOrderMark)
		}
		starts := isMarker(text, "---")
		ends := isMarker(text, "...") && isComment(text[len("..."):])
		if starts && says {
			end(at, line)
		}
		if !says && len(list) == most && (starts || !isComment(text)) {
			return list, line
		}
		if ends {
			end(next, line+1)
		} else {
			says = says || starts || !isComment(text)
		}
		at = next
	}
	end(len(data), 0)
	return list, 0
}

var byteOrderMark = []byte("\ufeff")

// isMarker reports whether a line is such a marker. The document itself may
// follow on the same line.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isComment reports whether a line is blank, a comment or a directive, to every
// reader: a comment that holds another line break of YAML 1.1 ends there for some.
func isComment(line []byte) bool {
	line = bytes.Trim(line, " \t\r\n")
	return len(line) == 0 || (line[0] == '#' || line[0] == '%') && !hasBreak(line)
}

// breaks are the line breaks of YAML 1.1 other than a line feed.
var breaks = [][]byte{[]byte("\r"), []byte("\u0085"), []byte("\u2028"), []byte("\u2029")}

func hasBreak(line []byte) bool {
	return slices.ContainsFunc(breaks, func(b []byte) bool { return bytes.Contains(line, b) })
}
