package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable is text for a terminal: what would move its cursor, change its
// colours or break a line is written as an escape. Names of files and
// descriptions may hold anything.
func Printable(text string) string { return escapedBut(text, "") }

// PrintableLines is Printable for text that has lines of its own: line ends and tabs stay.
func PrintableLines(text string) string { return escapedBut(text, "\n\t") }

// Labelled returns a text for a terminal in which each line follows a label.
func Labelled(label, text string) string {
	lines := strings.Split(PrintableLines(text), "\n")
	return Printable(label) + " | " + strings.Join(lines, "\n"+Printable(label)+" | ")
}

// OneLine returns the first line of a text, with … for the others.
func OneLine(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " …"
	}
	return first
}

// escapedBut escapes what Printable does, but for the characters of kept.
func escapedBut(text, kept string) string {
	odd := func(c rune) bool {
		return (c == unicode.ReplacementChar || !unicode.IsPrint(c)) && !strings.ContainsRune(kept, c)
	}
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	var out strings.Builder
	for _, c := range text {
		if !odd(c) {
			out.WriteRune(c)
			continue
		}
		quoted := fmt.Sprintf("%+q", string(c))
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// EscapedJSON escapes in a line of JSON what may be in it although a terminal
// obeys it, or hides text by it: control characters from U+0080 on, format
// characters (Unicode's Cf) such as those that turn the direction of text, and
// the two that some programs take for line ends.
func EscapedJSON(line []byte) []byte {
	if isASCII(line) {
		return line
	}
	clean := func(c rune) bool {
		return c < utf8.RuneSelf || !unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	at := bytes.IndexFunc(line, func(c rune) bool { return !clean(c) })
	if at < 0 {
		return line
	}
	out := append(make([]byte, 0, len(line)+len(line)/4), line[:at]...)
	for at < len(line) {
		c, size := utf8.DecodeRune(line[at:])
		switch {
		case clean(c):
			out = append(out, line[at:at+size]...)
		case c <= 0xFFFF:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			high, low := utf16.EncodeRune(c)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
		at += size
	}
	return out
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}

// FirstLine is as much of a description as a table has room for.
func FirstLine(text string) string {
	const most = 72
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return Cut(Printable(strings.ReplaceAll(line, "\t", " ")), most)
}

// WriteLines writes text that has lines of its own, escaped as PrintableLines does.
func WriteLines(w io.Writer, text string) error {
	_, err := io.WriteString(w, PrintableLines(text))
	return err
}

// Cut returns as much of a text as width characters have room for.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// WriteJSON writes v as indented JSON, escaped where w is a terminal.
func WriteJSON(w io.Writer, v any) error {
	out, err := JSON(v)
	if err != nil {
		return err
	}
	if IsTerminal(w) {
		out = EscapedJSON(out)
	}
	_, err = w.Write(out)
	return err
}

// JSON returns v as indented JSON, with a line's end.
func JSON(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return text.Bytes(), err
}

// Count is a number with its noun: "1 tool", "2 tools".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Wrap breaks a text into lines of at most width bytes, where it has spaces.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
