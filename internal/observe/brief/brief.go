// Package brief shortens what Orla repeats of the words of others in its errors and its log, and bounds how
// often it logs a thing.
package brief

import (
	"strings"
	"unicode"
)

// Cut returns a text, cut to about most bytes.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Plain returns a text of others as one line, without what a terminal would obey or not show.
func Plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case r != ' ' && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, text))
}
