package toolfile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// headSize is how much of an executable is read at most. A metadata block has
// to end within it.
const headSize = 64 << 10

// signs begin a comment, in the languages that people write tools in.
var signs = []string{"#", "//", "--", ";"}

// block is the metadata block of a script (SPEC A6).
type block struct {
	body    []byte // its lines without the comment signs
	line    int    // of the opening, from 1
	columns []int  // how much was taken off the front of each line of body
}

// position maps a place in the body to one in the script.
func (b *block) position(line, column int) (int, int) {
	if line <= len(b.columns) {
		column += b.columns[line-1]
	}
	return b.line + line, column
}

// findBlock looks for a metadata block in the head of a file, above the first
// line that is neither comment nor blank. unsure means that the head ends
// before that line: when whole is false, more of the file has to be read. A
// block that is not closed, or that is not the only one, is an error.
func findBlock(file string, head []byte, whole bool) (found *block, unsure bool, err error) {
	scan := blockScan{file: file}
	rest := bytes.TrimPrefix(head, byteOrderMark)
	for len(rest) > 0 {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if !ended && !whole {
			return scan.found, true, scan.unclosed()
		}
		rest = after
		if more, err := scan.line(string(bytes.TrimSuffix(line, []byte("\r")))); err != nil || !more {
			return scan.found, false, cmp.Or(err, scan.stray)
		}
	}
	return scan.found, !whole, cmp.Or(scan.unclosed(), scan.stray)
}

// blockScan goes through the top of a file line by line.
type blockScan struct {
	file    string
	number  int    // of the line, from 1
	sign    string // of the block that is open; "" when none is
	open    *block
	found   *block
	comment bool  // inside /* … */
	stray   error // isolation is asked for where nobody reads it
}

// line takes the next line, and reports whether the top of the file goes on.
func (s *blockScan) line(line string) (bool, error) {
	s.number++
	if s.sign != "" {
		return true, s.inside(line)
	}
	trimmed := strings.TrimSpace(line)
	switch {
	case s.comment:
		s.checkStray(trimmed, "#")
		s.comment = !strings.Contains(line, "*/")
		return true, nil
	case strings.HasPrefix(trimmed, "/*"):
		s.comment = !strings.Contains(trimmed[2:], "*/")
		return true, nil
	case trimmed == "", s.number == 1 && strings.HasPrefix(line, "#!"), trimmed == "<?php":
		return true, nil
	}
	i := slices.IndexFunc(signs, func(sign string) bool { return strings.HasPrefix(trimmed, sign) })
	if i < 0 {
		return false, nil
	}
	content, _, ok := uncomment(line, signs[i])
	s.checkStray(trimmed, signs[i])
	if ok && strings.TrimRight(content, " \t") == "/// tool" {
		if s.found != nil {
			return false, s.fault(s.number, "a second metadata block begins here; the first is on line %d", s.found.line)
		}
		s.sign, s.open = signs[i], &block{line: s.number}
	}
	return true, nil
}

// checkStray reports an isolation_mode in a comment outside of a block. It has no effect there, and an
// author must not believe that the tool is isolated.
func (s *blockScan) checkStray(comment, sign string) {
	key, value, _ := strings.Cut(strings.TrimLeft(comment, "#/*-; \t"), ":")
	mode := manifest.IsolationMode(strings.Trim(strings.TrimSpace(value), `"'`))
	if s.stray != nil || strings.TrimSpace(key) != "isolation_mode" || mode == manifest.IsolationNone || !slices.Contains(mode.Values(), string(mode)) {
		return
	}
	s.stray = s.fault(s.number, "isolation_mode is not in a metadata block, and would have no effect: the block begins with \"%s /// tool\" and ends with \"%[1]s ///\"", sign)
}

// inside takes a line of the open block.
func (s *blockScan) inside(line string) error {
	content, taken, ok := uncomment(line, s.sign)
	if !ok {
		return s.fault(s.number, "the metadata block of line %d must end with \"%s ///\" before this line, which is not a comment", s.open.line, s.sign)
	}
	switch strings.TrimRight(content, " \t") {
	case "///":
		s.found, s.open, s.sign = s.open, nil, ""
		return nil
	case "/// tool":
		return s.fault(s.number, "a second metadata block begins inside that of line %d, which must end with \"%s ///\"", s.open.line, s.sign)
	}
	s.open.body = append(append(s.open.body, content...), '\n')
	s.open.columns = append(s.open.columns, taken)
	return nil
}

// unclosed is the error for a head that ends inside a block.
func (s *blockScan) unclosed() error {
	if s.sign == "" {
		return nil
	}
	return s.fault(s.open.line, "the metadata block that begins here must end with a line \"%s ///\", within the file's first %d bytes", s.sign, headSize)
}

func (s *blockScan) fault(line int, format string, args ...any) error {
	return yamldoc.Faults{{File: s.file, Line: line, Column: 1, Msg: fmt.Sprintf(format, args...)}}
}

// uncomment takes the comment sign and one space off a line, and says how many
// bytes that were.
func uncomment(line, sign string) (content string, taken int, ok bool) {
	content, ok = strings.CutPrefix(line, sign)
	content = strings.TrimPrefix(content, " ")
	return content, len(line) - len(content), ok
}

// notInBlock says why keys of tool.yaml do not belong in a block or a sidecar.
var notInBlock = map[string]string{
	"name":       "does not belong here: a simple tool is called as its file is",
	"version":    "does not belong here: only a package has a version",
	"entrypoint": "does not belong here: the executable itself is run",
}

// applyBlock reads the body of a block, or a whole sidecar, into t.
func applyBlock(t *manifest.Tool, file string, data []byte, position func(int, int) (int, int)) (warnings []error, err error) {
	defaults := keys.RuntimeDefaults()
	written := blockYAML{Runtime: defaults, Simple: defaults.Simple}
	doc, err := yamldoc.Decode(file, data, &written, yamldoc.Options{Position: position, Refuse: notInBlock})
	if err != nil {
		return nil, err
	}
	d := keys.Description{Doc: doc, MCP: written.MCP, Runtime: written.Runtime}
	d.Unfold(written.MCPKeys, written.Simple)
	t.Description = written.Description
	d.Fill(t)
	if t.Kind == manifest.Capsule {
		d.Doc.Faultf("runtime.mode", "must be simple: a capsule is a folder with tool.yaml")
	}
	return d.Warnings, doc.Err()
}
