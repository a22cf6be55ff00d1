package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// maxDepth is how deep JSON may be nested, as with encoding/json.
const maxDepth = 10_000

// maxNumber is how long a number may be, in bytes. Python, for one, does not read whole
// numbers of over 4300 digits.
const maxNumber = 1000

// Valid reports whether raw is valid JSON: of valid syntax, that is; like
// encoding/json it does not look into the encoding of strings. A number of over maxNumber
// bytes is not valid.
func Valid(raw []byte) bool {
	valid, _ := Check(raw)
	return valid
}

// Check reports whether raw is valid JSON, as Valid does, and whether it has
// nothing but ASCII, and so is text for certain.
func Check(raw []byte) (valid, ascii bool) { return CheckDepth(raw, maxDepth) }

// CheckDepth is like Check, but raw may be nested only so deep.
func CheckDepth(raw []byte, deepest int) (valid, ascii bool) {
	c := checker{raw: raw, ascii: true, deepest: deepest}
	return c.document(), c.ascii
}

// checker reads JSON from front to back, once.
type checker struct {
	raw   []byte
	at    int // what is read
	open  brackets
	ascii bool

	deepest int // brackets that may be open at once
}

// brackets are those that are open, as they are closed. They are in an array as a rule: a slice of one would have it on the
// heap for each text.
type brackets struct {
	count int
	outer [64]byte
	inner []byte // those behind outer, and perhaps more
}

func (b *brackets) add(end byte) {
	if b.count < len(b.outer) {
		b.outer[b.count] = end
	} else {
		b.inner = append(b.inner[:b.count-len(b.outer)], end)
	}
	b.count++
}

func (b *brackets) last() byte {
	if b.count <= len(b.outer) {
		return b.outer[b.count-1]
	}
	return b.inner[b.count-len(b.outer)-1]
}

// document reads a value, whatever is in it, and that nothing follows.
func (c *checker) document() bool {
	for {
		if !c.begin() {
			return false
		}
		for { // a value has ended
			c.space()
			if c.open.count == 0 {
				return c.at == len(c.raw)
			}
			if c.at == len(c.raw) {
				return false
			}
			end := c.open.last()
			next := c.raw[c.at]
			c.at++
			if next == ',' {
				if end == '}' && !c.key() {
					return false
				}
				break
			}
			if next != end {
				return false
			}
			c.open.count--
		}
	}
}

// begin reads a value that has nothing in it, or to where the first in it begins.
func (c *checker) begin() bool {
	for {
		c.space()
		if c.at == len(c.raw) {
			return false
		}
		first := c.raw[c.at]
		c.at++
		switch first {
		case '"':
			return c.text()
		case '{', '[':
			end := first + 2 // in ASCII each bracket closes two behind where it opens
			c.space()
			if c.at < len(c.raw) && c.raw[c.at] == end {
				c.at++
				return c.open.count < c.deepest
			}
			if c.open.count == c.deepest || end == '}' && !c.key() {
				return false
			}
			c.open.add(end)
		case 't':
			return c.word("true")
		case 'f':
			return c.word("false")
		case 'n':
			return c.word("null")
		default:
			c.at--
			return c.number()
		}
	}
}

// key reads a key and its colon.
func (c *checker) key() bool {
	c.space()
	if c.at == len(c.raw) || c.raw[c.at] != '"' {
		return false
	}
	c.at++
	if !c.text() {
		return false
	}
	c.space()
	if c.at == len(c.raw) || c.raw[c.at] != ':' {
		return false
	}
	c.at++
	return true
}

func (c *checker) space() {
	for c.at < len(c.raw) {
		switch c.raw[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// word reads a word whose first letter has been read.
func (c *checker) word(whole string) bool {
	rest := whole[1:]
	if len(c.raw)-c.at < len(rest) || string(c.raw[c.at:c.at+len(rest)]) != rest {
		return false
	}
	c.at += len(rest)
	return true
}

func (c *checker) number() bool {
	began := c.at
	return c.numeral() && c.at-began <= maxNumber
}

func (c *checker) numeral() bool {
	if c.at < len(c.raw) && c.raw[c.at] == '-' {
		c.at++
	}
	if c.at < len(c.raw) && c.raw[c.at] == '0' {
		c.at++
	} else if !c.digits() {
		return false
	}
	if c.at < len(c.raw) && c.raw[c.at] == '.' {
		c.at++
		if !c.digits() {
			return false
		}
	}
	if c.at < len(c.raw) && c.raw[c.at]|0x20 == 'e' {
		c.at++
		if c.at < len(c.raw) && (c.raw[c.at] == '+' || c.raw[c.at] == '-') {
			c.at++
		}
		return c.digits()
	}
	return true
}

func (c *checker) digits() bool {
	began := c.at
	for c.at < len(c.raw) && c.raw[c.at]-'0' <= 9 {
		c.at++
	}
	return c.at > began
}

// long is from how many bytes on it is worth the while to look for the end of a
// string first, and for an escape before that: both is faster than what follows.
const long = 64

// text reads a string from behind its first quote on.
func (c *checker) text() bool {
	rest := c.raw[c.at:]
	if end := bytes.IndexByte(rest, '"'); end >= long && bytes.IndexByte(rest[:end], '\\') < 0 {
		c.at += end + 1
		printable, ascii := noControl(rest[:end])
		c.ascii = c.ascii && ascii
		return printable
	}
	for {
		i, ascii := ordinary(c.raw[c.at:])
		c.at += i
		c.ascii = c.ascii && ascii
		if c.at == len(c.raw) {
			return false
		}
		next := c.raw[c.at]
		c.at++
		switch next {
		case '"':
			return true
		case '\\':
			if !c.escape() {
				return false
			}
		default: // a control character
			return false
		}
	}
}

// Eight bytes are looked at together, each in a part of a word of its own.
const (
	each  = 0x01_01_01_01_01_01_01_01 // times a byte: that byte in each part
	highs = 0x80 * each
)

// noControl reports whether there is no control character in raw, and whether all
// of it is ASCII.
func noControl(raw []byte) (none, ascii bool) {
	var below, seen uint64
	for ; len(raw) >= 32; raw = raw[32:] {
		a, b := binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])
		c, d := binary.LittleEndian.Uint64(raw[16:]), binary.LittleEndian.Uint64(raw[24:])
		below |= (a-' '*each)&^a | (b-' '*each)&^b | (c-' '*each)&^c | (d-' '*each)&^d
		seen |= a | b | c | d
	}
	none = below&highs == 0
	for _, b := range raw {
		none = none && b >= ' '
		seen |= uint64(b)
	}
	return none, seen&highs == 0
}

// ordinary returns how many bytes at the beginning of raw have no meaning in a
// string but themselves, and whether all of those are ASCII.
func ordinary(raw []byte) (n int, ascii bool) {
	var seen uint64
	for ; n+8 <= len(raw); n += 8 {
		word := binary.LittleEndian.Uint64(raw[n:])
		quote, slash := word^'"'*each, word^'\\'*each
		// A part's high bit is set where it is less than what is taken from it, or,
		// by the borrow, above such a one: the lowest is right.
		found := ((quote-each)&^quote | (slash-each)&^slash | (word-' '*each)&^word) & highs
		if found != 0 {
			bit := bits.TrailingZeros64(found) &^ 7
			return n + bit/8, (seen|word&(1<<bit-1))&highs == 0
		}
		seen |= word
	}
	for ; n < len(raw) && raw[n] != '"' && raw[n] != '\\' && raw[n] >= ' '; n++ {
		seen |= uint64(raw[n])
	}
	return n, seen&highs == 0
}

// escape reads an escape from behind its backslash on.
func (c *checker) escape() bool {
	if c.at == len(c.raw) {
		return false
	}
	kind := c.raw[c.at]
	c.at++
	switch kind {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		const digits = 4
		if len(c.raw)-c.at < digits || slices.ContainsFunc(c.raw[c.at:c.at+digits], notHex) {
			return false
		}
		c.at += digits
		return true
	}
	return false
}

func notHex(b byte) bool {
	lower := b | 0x20
	return (b < '0' || b > '9') && (lower < 'a' || lower > 'f')
}
