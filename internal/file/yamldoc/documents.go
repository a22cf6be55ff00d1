package yamldoc

import (
	"bytes"
	"slices"
)

// Document is one of the documents of a YAML file.
type Document struct {
	Data []byte
	Line int // where Data begins in the file; from 1
}

// Position maps a position in Data to one in the file. It is for Options.
func (d Document) Position(line, column int) (int, int) { return d.Line - 1 + line, column }

// Documents splits a file at lines "---", which begin a document, and "...", which end one. Comments
// and directives above a "---" belong to the document below it. No YAML text, quoted or not, can
// contain such a line; so a document that cannot be parsed does not affect the others.
func Documents(data []byte) (list []Document) {
	begin, first := 0, 1 // byte and line where the current document begins
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
		if ends {
			end(next, line+1)
		} else {
			says = says || starts || !isComment(text)
		}
		at = next
	}
	end(len(data), 0)
	return list
}

var byteOrderMark = []byte("\ufeff")

// isMarker reports whether a line is a marker. The document may follow on the same line.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isComment reports whether every YAML reader takes a line for blank, a comment or a directive. A
// comment with another line break of YAML 1.1 ends there for some readers.
func isComment(line []byte) bool {
	line = bytes.Trim(line, " \t\r\n")
	return len(line) == 0 || (line[0] == '#' || line[0] == '%') && !hasBreak(line)
}

// breaks are the line breaks of YAML 1.1 except the line feed.
var breaks = [][]byte{[]byte("\r"), []byte("\u0085"), []byte("\u2028"), []byte("\u2029")}

func hasBreak(line []byte) bool {
	return slices.ContainsFunc(breaks, func(b []byte) bool { return bytes.Contains(line, b) })
}
