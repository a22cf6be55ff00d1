package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// jsonReader looks through JSON of any length: one text after another. It keeps no
// more of it than the beginning of a string.
type jsonReader struct {
	io.ByteScanner
	rule bool // one of the texts is, or may be, a governance document
}

// role is what a value of JSON is to somebody who looks for governance documents.
type role int

const (
	asData     role = iota // nothing
	asDocument             // a whole text, or an item of a list of documents
	asMember               // a value of a document
	asSpec                 // its spec
	asItems                // its items
)

var errNotJSON = errors.New("is not JSON")

const (
	maxNested = 1000 // levels of JSON that are read
	maxKept   = 256  // bytes of a string that are kept; no kind is that long
)

// read reads all texts. The error is io.EOF if the last one is not complete.
func (j *jsonReader) read() error {
	for {
		c, err := j.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := j.document(c, 0, &j.rule); err != nil {
			return err
		}
	}
}

// document reads a text or an item, and sets rule if it may be a governance document.
func (j *jsonReader) document(first byte, level int, rule *bool) error {
	var s says
	_, err := j.value(first, level, asDocument, &s)
	*rule = *rule || s.mayRule(func() bool { return err != nil }) // nobody knows what the rest would be
	return err
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

// value reads the value that begins with a byte. It returns the text of a string
// that is a member of a document; s is what that says.
func (j *jsonReader) value(first byte, level int, as role, s *says) (text string, err error) {
	switch {
	case level > maxNested:
		return "", fmt.Errorf("%w that is nested less than %d deep", errNotJSON, maxNested)
	case first == '"':
		return j.text(as == asMember)
	case first == '{':
		return "", j.object(level, as, s)
	case first == '[':
		return "", j.array(level, as, s)
	}
	return "", j.literal(first)
}

// literal reads the rest of a number, true, false or null.
func (j *jsonReader) literal(first byte) error {
	text := []byte{first}
	wrong := errNotJSON
	for len(text) <= maxKept {
		c, err := j.ReadByte()
		if errors.Is(err, io.EOF) {
			if begins := func(word string) bool { return strings.HasPrefix(word, string(text)) }; slices.ContainsFunc(jsonWords, begins) || text[0] == '-' {
				wrong = err // the rest is missing
			}
			break
		}
		if err != nil {
			return err
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && !strings.ContainsRune("+-.EINy", rune(c)) {
			if err := j.UnreadByte(); err != nil {
				return err
			}
			break
		}
		text = append(text, c)
	}
	if !isLiteral(string(text)) {
		return wrong
	}
	return nil
}

// jsonWords are the values of JSON that are words, with the numbers that many writers have in addition.
var jsonWords = []string{"true", "false", "null", "NaN", "Infinity", "-Infinity"}

// isLiteral reports whether a text is a number or a word of JSON.
func isLiteral(text string) bool {
	if slices.Contains(jsonWords, text) {
		return true
	}
	_, err := strconv.ParseFloat(text, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(text, "xinpINy_")
}

// object reads the rest of an object.
func (j *jsonReader) object(level int, as role, s *says) error {
	return j.each('}', func(c byte) error {
		if c != '"' {
			return errNotJSON
		}
		key, err := j.text(as == asDocument || as == asSpec)
		if err == nil {
			c, err = j.next()
		}
		if err == nil && c != ':' {
			err = errNotJSON
		}
		if err == nil {
			c, err = j.next()
		}
		if err != nil {
			return err
		}
		of := asData
		switch {
		case as == asSpec && slices.Contains(ruleKeys, key):
			s.ruleKeys = true
		case as == asDocument && key == "spec":
			s.spec, of = true, asSpec // also where the text ends in it
		case as == asDocument && key == "items":
			of = asItems
		case as == asDocument:
			of = asMember
		}
		text, err := j.value(c, level+1, of, s)
		if as == asDocument && err == nil {
			s.add(key, text)
		}
		return err
	})
}

// array reads the rest of an array.
func (j *jsonReader) array(level int, as role, s *says) error {
	return j.each(']', func(c byte) error {
		if as == asItems {
			return j.document(c, level+1, &s.items)
		}
		_, err := j.value(c, level+1, asData, nil)
		return err
	})
}

// each calls read for the first byte of each member, up to the end.
func (j *jsonReader) each(end byte, read func(first byte) error) error {
	for n := 0; ; n++ {
		c, err := j.next()
		switch {
		case err != nil:
			return err
		case c == end:
			return nil // n is 0, or a comma would have been read
		case n > 0 && c != ',':
			return errNotJSON
		case n > 0:
			if c, err = j.next(); err != nil {
				return err
			}
		}
		if err := read(c); err != nil {
			return err
		}
	}
}

// text reads the rest of a string. It returns it if that is asked for and it is short.
func (j *jsonReader) text(keep bool) (text string, err error) {
	raw := []byte{'"'}
	for escaped := false; ; {
		c, err := j.ReadByte()
		switch {
		case err != nil:
			return "", err
		case c < ' ':
			return "", errNotJSON
		}
		if keep && len(raw) <= maxKept {
			raw = append(raw, c)
		}
		if c == '"' && !escaped {
			break
		}
		escaped = c == '\\' && !escaped
	}
	if !keep || len(raw) > maxKept {
		return "", nil
	}
	if json.Unmarshal(raw, &text) != nil {
		return "", errNotJSON
	}
	return text, nil
}
