package resource

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// wordSearch searches a text that comes in parts for words. It finds them in any case, in UTF-8, UTF-16 and
// UTF-32, and if they are written with escapes of YAML or JSON, invisible characters or full-width letters. It may
// find too much if a backslash is not an escape. It keeps only a few bytes of the text.
type wordSearch struct {
	words   []string // of ASCII, lower case
	plain   []byte   // text that was made plain; from one part to the next its end, where a word may begin
	rest    []byte   // the last bytes of a part, which may belong to what the next one begins with
	joining bool     // a line was joined to the next one, whose indentation does not count
}

const (
	searched = 64 << 10 // bytes that are searched at once
	longest  = len(`\U0010ffff`)
)

// noText does not occur in a text of any encoding, and no reader reads past it.
var noText = make([]byte, 64)

// holdsWord reports whether one of some words is in a text.
func holdsWord(text []byte, words []string) bool {
	s := wordSearch{words: words}
	for len(text) > searched {
		if s.feed(text[:searched], false) {
			return true
		}
		text = text[searched:]
	}
	return s.feed(text, true)
}

// findWord reports whether one of some words is in what a file holds up to a
// number of bytes, over which it gives errTooLong.
func findWord(r io.Reader, words []string, most int64) (bool, error) {
	s := wordSearch{words: words}
	part := make([]byte, searched)
	for {
		n, err := io.ReadFull(r, part)
		most -= int64(n)
		text, _, ended := bytes.Cut(part[:n], noText)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return s.feed(text, true), nil
		case err != nil:
			return false, regularfile.ReadError(err)
		case s.feed(text, ended):
			return true, nil
		case ended:
			return false, nil
		case most < 0:
			return false, errTooLong
		}
	}
}

var errTooLong = errors.New("is too long to be searched")

// feed searches the next part of the text.
func (s *wordSearch) feed(part []byte, last bool) bool {
	if bytes.IndexByte(part, 0) >= 0 { // letters of UTF-16 and UTF-32 have them
		part = bytes.ReplaceAll(part, []byte{0}, nil)
	}
	if len(s.rest) > 0 {
		part = append(s.rest, part...)
	}
	n := s.makePlain(part, last)
	s.rest = bytes.Clone(part[n:])
	keep := 0
	for _, word := range s.words {
		if bytes.Contains(s.plain, []byte(word)) {
			return true
		}
		keep = max(keep, len(word)-1)
	}
	if end := len(s.plain); end > keep {
		s.plain = append(s.plain[:0], s.plain[end-keep:]...)
	}
	return false
}

// makePlain adds a part of the text to plain. It returns how many of its bytes it
// has taken, which are all if it is the last.
func (s *wordSearch) makePlain(part []byte, last bool) int {
	for i := 0; i < len(part); {
		c := part[i]
		switch {
		case s.joining && (c == ' ' || c == '\t'):
			i++
			continue
		case lower[c] != 0:
			i += s.addLower(part[i:])
		case !last && len(part)-i < longest:
			return i
		case c == '\\':
			var r rune
			var size int
			if r, size, s.joining = unescape(part[i:]); r >= 0 {
				s.addPlain(r)
			}
			i += size
			continue
		default:
			r, size := utf8.DecodeRune(part[i:])
			s.addPlain(r)
			i += size
		}
		s.joining = false
	}
	return len(part)
}

// lower has the lower case of each byte that stands for itself, and 0 for others.
var lower = func() (list [256]byte) {
	for c := range byte(utf8.RuneSelf) {
		if c != '\\' {
			list[c] = byte(unicode.ToLower(rune(c)))
		}
	}
	return list
}()

// addLower adds what a text begins with that stands for itself, and returns how
// long that is.
func (s *wordSearch) addLower(text []byte) (n int) {
	s.plain = slices.Grow(s.plain, len(text))
	room := s.plain[len(s.plain):][:len(text)]
	for ; n < len(text); n++ {
		c := lower[text[n]]
		if c == 0 {
			break
		}
		room[n] = c
	}
	s.plain = s.plain[:len(s.plain)+n]
	return n
}

// addPlain adds a character, or the letter that it stands for.
func (s *wordSearch) addPlain(r rune) {
	r = letter(r)
	switch {
	case r < 0:
	case r < utf8.RuneSelf:
		s.plain = append(s.plain, byte(unicode.ToLower(r)))
	default:
		s.plain = append(s.plain, '?') // of no word
	}
}

// unescape reads the escape that a text begins with: the character, or a negative
// number for none, and how long it is. joins reports that it joins two lines.
func unescape(text []byte) (r rune, size int, joins bool) {
	digits := 0
	if len(text) > 1 {
		switch text[1] {
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		}
	}
	if digits > 0 && len(text) >= 2+digits {
		if n, err := strconv.ParseUint(string(text[2:2+digits]), 16, 31); err == nil {
			return rune(n), 2 + digits, false
		}
	}
	for _, end := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(text[1:], []byte(end)) {
			return -1, 1 + len(end), true
		}
	}
	return -1, 1, false
}

// letter returns a character, or the plain letter that it is another form of; a negative number for an invisible
// character.
func letter(r rune) rune {
	const wide, plain = '\uff01', '!'
	switch {
	case unicode.Is(unicode.Cf, r):
		return -1
	case r >= wide && r <= wide+'~'-plain:
		return r - wide + plain
	case r == 'ſ':
		return 's'
	case r == '\u212a': // of Kelvin
		return 'k'
	}
	return r
}

// visible returns a text without invisible characters, and with plain letters for full-width ones. Text that was
// copied from a page may have either.
func visible(text string) string { return strings.Map(letter, text) }
