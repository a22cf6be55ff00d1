package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxCanonical is the size in bytes of the largest value that has a canonical form, and maxCanonicalDepth the
	// deepest nesting.
	maxCanonical      = 256 << 10
	maxCanonicalDepth = 200
)

// Canonical returns the canonical form of a valid JSON value; see Canonicalizer.
func Canonical(raw []byte) ([]byte, bool) { return new(Canonicalizer).Append(nil, raw) }

// Canonicalizer makes canonical forms, and can be used again. It is not safe for concurrent use.
type Canonicalizer struct {
	in      []byte
	at      int
	out     []byte
	members []member // of the objects that are being read, the innermost last
	moved   []byte   // room for sorting
}

// Cap returns how many bytes it keeps for its next use.
func (c *Canonicalizer) Cap() int { return cap(c.moved) + 48*cap(c.members) }

// member is where a member of an object is in out.
type member struct {
	start, key, end int
	units           []uint16 // of its name, while members are brought in order that are not all plain; else nil
}

// Append appends a valid JSON value to out in a form that does not depend on spaces, on the order of
// members and on escapes in strings: that of RFC 8785, but numbers keep the spelling that they have, and of
// members with one name all stay, in their order. It reports false if the value is too large or too deep for
// that, or has half a character (\ud800), for which RFC 8785 has no form.
func (c *Canonicalizer) Append(out, raw []byte) ([]byte, bool) {
	if len(raw) > maxCanonical {
		return out, false
	}
	*c = Canonicalizer{in: raw, out: out, members: c.members[:0], moved: c.moved[:0]}
	ok := c.value(0)
	out = c.out
	c.in, c.out = nil, nil
	return out, ok
}

func (c *Canonicalizer) next() byte {
	for c.at < len(c.in) {
		switch b := c.in[c.at]; b {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return b
		}
	}
	return 0
}

func (c *Canonicalizer) value(depth int) bool {
	if depth > maxCanonicalDepth {
		return false
	}
	switch c.next() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		return c.text()
	}
	start := c.at // a number, true, false or null
	for c.at < len(c.in) && !ends(c.in[c.at]) {
		c.at++
	}
	c.out = append(c.out, c.in[start:c.at]...)
	return c.at > start
}

// ends reports whether a byte comes after a number, or one of true, false and null.
func ends(b byte) bool {
	switch b {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

func (c *Canonicalizer) array(depth int) bool {
	c.at++
	c.out = append(c.out, '[')
	for first := true; ; first = false {
		switch c.next() {
		case ']':
			c.at++
			c.out = append(c.out, ']')
			return true
		case ',':
			c.at++
		}
		if !first {
			c.out = append(c.out, ',')
		}
		if !c.value(depth + 1) {
			return false
		}
	}
}

func (c *Canonicalizer) object(depth int) bool {
	c.at++
	c.out = append(c.out, '{')
	mine, sorted := len(c.members), true
	for {
		switch c.next() {
		case '}':
			c.at++
			c.close(mine, sorted)
			return true
		case ',':
			c.at++
			c.next()
		}
		if len(c.members) > mine {
			c.out = append(c.out, ',')
		}
		m := member{start: len(c.out)}
		if c.next() != '"' || !c.text() || c.next() != ':' {
			return false
		}
		c.at++
		m.key = len(c.out)
		c.out = append(c.out, ':')
		if !c.value(depth + 1) {
			return false
		}
		m.end = len(c.out)
		c.members = append(c.members, m)
		if n := len(c.members); sorted && n > mine+1 && c.compare(c.members[n-2], m) > 0 {
			sorted = false
		}
	}
}

// close ends the object whose members begin at mine, and brings them in order.
func (c *Canonicalizer) close(mine int, sorted bool) {
	if own := c.members[mine:]; !sorted {
		begin := own[0].start
		if slices.ContainsFunc(own, func(m member) bool { return !plain(c.out[m.start:m.key]) }) {
			for i, m := range own { // once for each, and not at each comparison
				own[i].units = units(c.out[m.start:m.key])
			}
		}
		slices.SortStableFunc(own, c.compare)
		c.moved = c.moved[:0]
		for i, m := range own {
			if i > 0 {
				c.moved = append(c.moved, ',')
			}
			c.moved = append(c.moved, c.out[m.start:m.end]...)
		}
		copy(c.out[begin:], c.moved)
	}
	c.members = c.members[:mine]
	c.out = append(c.out, '}')
}

// compare compares names as RFC 8785 does: by their UTF-16 code units.
func (c *Canonicalizer) compare(a, b member) int {
	if a.units != nil && b.units != nil {
		return slices.Compare(a.units, b.units)
	}
	x, y := c.out[a.start:a.key], c.out[b.start:b.key]
	if plain(x) && plain(y) {
		return bytes.Compare(x[1:len(x)-1], y[1:len(y)-1])
	}
	return slices.Compare(units(x), units(y))
}

func plain(name []byte) bool {
	return !slices.ContainsFunc(name, func(b byte) bool { return b == '\\' || b >= 0x80 })
}

func units(name []byte) []uint16 {
	var text string
	if json.Unmarshal(name, &text) != nil {
		text = string(name)
	}
	return utf16.Encode([]rune(text))
}

// escapedAt reports whether the quote at c.at is escaped, in a string that begins at start.
func (c *Canonicalizer) escapedAt(start int) bool {
	n := 0
	for at := c.at - 1; at > start && c.in[at] == '\\'; at-- {
		n++
	}
	return n%2 == 1
}

// isText reports whether a JSON string is one of whole characters. Two with halves would have one form.
func isText(raw []byte) bool {
	for at := 0; at < len(raw); at++ {
		if raw[at] != '\\' {
			continue
		}
		at++
		if unit := unitAt(raw, at); utf16.IsSurrogate(unit) {
			if at += 5; at >= len(raw) || raw[at] != '\\' || utf16.DecodeRune(unit, unitAt(raw, at+1)) == utf8.RuneError {
				return false
			}
			at++
		}
	}
	return utf8.Valid(raw)
}

// unitAt returns the code unit of an escape whose u is at a place in a JSON string; -1 for another escape.
func unitAt(raw []byte, at int) rune {
	if at+5 > len(raw) || raw[at] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(raw[at+1:at+5]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// text writes a string. One with escapes is written with those that RFC 8785 wants.
func (c *Canonicalizer) text() bool {
	start, escaped := c.at, false
	for c.at++; ; c.at++ {
		n := bytes.IndexByte(c.in[c.at:], '"')
		if n < 0 {
			return false
		}
		escaped = escaped || bytes.IndexByte(c.in[c.at:c.at+n], '\\') >= 0
		if c.at += n; !escaped || !c.escapedAt(start) {
			break
		}
	}
	c.at++
	raw := c.in[start:c.at]
	if !escaped {
		c.out = append(c.out, raw...)
		return true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || strings.ContainsRune(text, utf8.RuneError) && !isText(raw) {
		return false
	}
	const hex = "0123456789abcdef"
	c.out = append(c.out, '"')
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"' || b == '\\':
			c.out = append(c.out, '\\', b)
		case b >= ' ':
			c.out = append(c.out, b)
		default:
			if at := bytes.IndexByte([]byte("\b\t\n\f\r"), b); at >= 0 {
				c.out = append(c.out, '\\', "btnfr"[at])
			} else {
				c.out = append(c.out, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
			}
		}
	}
	c.out = append(c.out, '"')
	return true
}
