package resource

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// jsonReader looks through a JSON text of any length. It keeps no more of it than
// the beginning of a string.
type jsonReader struct {
	io.ByteScanner
	rule bool // a key kind is of a governance document
}

var errNotJSON = errors.New("is not JSON")

const (
	maxNested = 1000 // levels of JSON that are read
	maxKept   = 256  // bytes of a string that are kept; no kind is that long
)

// harmless reports whether the whole text is JSON and has no governance document.
func (j *jsonReader) harmless() bool {
	err := j.read()
	return err == nil && !j.rule
}

// read reads the whole text, which is one value.
func (j *jsonReader) read() error {
	c, err := j.next()
	if err != nil {
		return err
	}
	if _, err := j.value(c, 0); err != nil {
		return err
	}
	if _, err := j.next(); !errors.Is(err, io.EOF) {
		return errNotJSON
	}
	return nil
}

// next reads the next byte that is not white space.
func (j *jsonReader) next() (byte, error) {
	for {
		c, err := j.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, err
		}
	}
}

// value reads the value that begins with a byte. It returns the text of a string.
func (j *jsonReader) value(first byte, level int) (text string, err error) {
	switch {
	case level > maxNested:
		return "", fmt.Errorf("%w that is nested less than %d deep", errNotJSON, maxNested)
	case first == '"':
		return j.text()
	case first == '{', first == '[':
		return "", j.members(first, level)
	}
	return "", j.literal(first)
}

// literal reads the rest of a number, true, false or null.
func (j *jsonReader) literal(first byte) error {
	text := []byte{first}
	for len(text) <= maxKept {
		c, err := j.ReadByte()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && !strings.ContainsRune("+-.E", rune(c)) {
			if err := j.UnreadByte(); err != nil {
				return err
			}
			break
		}
		text = append(text, c)
	}
	if !isLiteral(string(text)) {
		return errNotJSON
	}
	return nil
}

// isLiteral reports whether a text is a number of JSON, true, false or null.
func isLiteral(text string) bool {
	switch text {
	case "true", "false", "null":
		return true
	}
	_, err := strconv.ParseFloat(text, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(text, "xinp_")
}

// members reads the rest of an object or an array.
func (j *jsonReader) members(first byte, level int) error {
	object := first == '{'
	end := first + 2 // "}" and "]" are the second characters after "{" and "["
	for n := 0; ; n++ {
		c, err := j.next()
		if n == 0 && c == end && err == nil {
			return nil
		}
		if n > 0 && err == nil {
			if c == end {
				return nil
			}
			if c != ',' {
				return errNotJSON
			}
			c, err = j.next()
		}
		key := ""
		if object && err == nil {
			if c != '"' {
				return errNotJSON
			}
			if key, err = j.text(); err == nil {
				if c, err = j.next(); err == nil && c != ':' {
					return errNotJSON
				}
			}
			if err == nil {
				c, err = j.next()
			}
		}
		if err != nil {
			return err
		}
		value, err := j.value(c, level+1)
		if err != nil {
			return err
		}
		j.rule = j.rule || isKind(key) && ruleKind(value) != ""
	}
}

// text reads the rest of a string, and returns it if it is short.
func (j *jsonReader) text() (string, error) {
	raw := []byte{'"'}
	for escaped := false; ; {
		c, err := j.ReadByte()
		switch {
		case err != nil:
			return "", err
		case c < ' ':
			return "", errNotJSON
		}
		if len(raw) <= maxKept {
			raw = append(raw, c)
		}
		if c == '"' && !escaped {
			break
		}
		escaped = c == '\\' && !escaped
	}
	if len(raw) > maxKept {
		return "", nil
	}
	s := wordSearch{}
	s.makePlain(raw[1:len(raw)-1], true)
	return string(s.plain), nil
}
