package secret

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscapeLevels is how many times a text is unescaped to find values: JSON in a string of JSON in
// a string of JSON.
const maxEscapeLevels = 3

// span is a part of a text, from one byte offset up to another.
type span struct{ from, to int }

// escaped returns where values occur in a text that is unescaped up to maxEscapeLevels times. It
// finds values with JSON escapes that no form has: JSON allows several spellings of most characters;
// PHP writes "/" as "\/" and .NET writes "+" as "\u002B". The time is linear in the size of the text
// for each level. If there are more than most values, it stops and reports false.
func (r *Redactor) escaped(text []byte, most int) (spans []span, ok bool) {
	if !hasEscapes(text) {
		return nil, true
	}
	plain := unescaped(make([]byte, 0, len(text)), text)
	for level := 1; ; level++ {
		found, ok := r.forms().find(plain, most-len(spans))
		if !ok {
			return nil, false
		}
		for below := level - 1; below >= 0 && len(found) > 0; below-- {
			found = origins(unescapedTimes(text, below), found)
		}
		spans = append(spans, found...)
		if level == maxEscapeLevels || !hasEscapes(plain) {
			return merged(spans), true
		}
		plain = unescaped(plain[:0], plain)
	}
}

// hasEscapes reports whether a text may have JSON escapes that no form has.
func hasEscapes(text []byte) bool {
	return bytes.Contains(text, []byte(`\u`)) || bytes.Contains(text, []byte(`\/`))
}

// unescapedTimes returns a text that is unescaped so many times; text itself for 0.
func unescapedTimes(text []byte, times int) []byte {
	if times == 0 {
		return text
	}
	plain := unescaped(make([]byte, 0, len(text)), text)
	for range times - 1 {
		plain = unescaped(plain[:0], plain)
	}
	return plain
}

// merged sorts spans and merges those that overlap.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	out := spans[:0]
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.from < out[last].to {
			out[last].to = max(out[last].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// origins converts sorted spans of an unescaped text into spans of text.
func origins(text []byte, spans []span) []span {
	at, n := 0, 0 // offsets in text, and in the unescaped text
	for i, s := range spans {
		for ; n < s.from; at, n = at+escapeLen(text, at), n+unescapedLen(text, at) {
		}
		spans[i].from = at
		for ; n < s.to; at, n = at+escapeLen(text, at), n+unescapedLen(text, at) {
		}
		spans[i].to = at
	}
	return spans
}

// unescaped appends a text to out, with its JSON escapes decoded. The result is never longer than
// text, so out may be text[:0].
func unescaped(out, text []byte) []byte {
	for at := 0; at < len(text); {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return append(out, text[at:]...)
		}
		out = append(out, text[at:at+next]...)
		at += next
		r, size := escape(text[at:])
		if r < 0 {
			out = append(out, text[at])
		} else {
			out = utf8.AppendRune(out, r)
		}
		at += size
	}
	return out
}

func escapeLen(text []byte, at int) int {
	if text[at] != '\\' {
		return 1
	}
	_, size := escape(text[at:])
	return size
}

func unescapedLen(text []byte, at int) int {
	if text[at] != '\\' {
		return 1
	}
	r, _ := escape(text[at:])
	return max(1, utf8.RuneLen(r))
}

// escape decodes a JSON escape at the beginning of a text, and returns its length. A backslash that
// does not begin an escape stands for itself: r is -1.
func escape(text []byte) (r rune, size int) {
	if len(text) < 2 {
		return -1, 1
	}
	switch text[1] {
	case '"', '\\', '/':
		return rune(text[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		high, ok := unit(text)
		if !ok {
			return -1, 1
		}
		if low, ok := unit(text[6:]); ok && utf16.IsSurrogate(high) {
			if both := utf16.DecodeRune(high, low); both != utf8.RuneError {
				return both, 12
			}
		}
		if utf16.IsSurrogate(high) {
			return utf8.RuneError, 6
		}
		return high, 6
	}
	return -1, 1
}

// unit decodes "\uXXXX" at the beginning of a text to a UTF-16 unit.
func unit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
