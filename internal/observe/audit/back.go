package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// changed says what is wrong with the lines of a file from the one that Orla has signed to the last one; "" for nothing. last
// is the last line, which does not come before the signed one. It reads no further back than lines follow each other.
func (end *ending) changed(signed, last link) (gap string, _ error) {
	in := backward{from: end.from, at: end.size - int64(len(end.fragment))}
	for next := (*Line)(nil); ; {
		raw, err := in.line()
		if err == nil && next != nil && next.Event == eventTorn {
			if !next.describes(raw) {
				return fmt.Sprintf("line %d tells of a line that was cut, and what is before it is another", next.Seq), nil
			}
			raw, err = in.line()
		}
		if errors.Is(err, io.EOF) {
			if next.Seq == signed.seq+1 && next.Prev == signed.hash.String() {
				return "", nil // the file before was rotated, or moved
			}
			return fmt.Sprintf("the file begins with line %d, which does not follow line %d, which Orla had signed", next.Seq, signed.seq), nil
		}
		if err != nil {
			return "", err
		}
		sum := hash(sha256.Sum256(raw))
		l := &Line{}
		switch err := json.Unmarshal(raw, l); {
		case next == nil:
			l.Seq = last.seq
		case err != nil || l.Seq+1 != next.Seq || sum.String() != next.Prev:
			return fmt.Sprintf("line %d does not follow what is before it: Orla had signed line %d", next.Seq, signed.seq), nil //nolint:nilerr // that is what is wrong with it
		}
		if l.Seq == signed.seq {
			if sum != signed.hash {
				return fmt.Sprintf("line %d is not the one that Orla had signed", l.Seq), nil
			}
			return "", nil
		}
		next = l
	}
}

// describes reports whether a line that tells of one that was cut has its size and its hash.
func (l *Line) describes(cut []byte) bool {
	return l.Bytes == len(cut) && l.SHA256 == hash(sha256.Sum256(cut)).String()
}

// backward reads the lines of a file, the last one first.
type backward struct {
	from io.ReaderAt
	at   int64  // where text begins in the file
	text []byte // what was read and not returned; it ends with a line end
}

// line returns the line before the last one that it has returned, without its line end, and io.EOF if there is none. It is
// valid until the next call.
func (b *backward) line() ([]byte, error) {
	for {
		if n := len(b.text) - 1; n >= 0 {
			if i := bytes.LastIndexByte(b.text[:n], '\n'); i >= 0 || b.at == 0 {
				line := b.text[i+1 : n]
				b.text = b.text[:i+1]
				return line, nil
			}
		}
		switch {
		case b.at == 0:
			return nil, io.EOF
		case len(b.text) > maxFragment+maxLine:
			return nil, errors.New("it is not an audit log: a line is too long")
		}
		more := min(b.at, int64(len(b.text)+2*maxLine))
		text := make([]byte, more, int(more)+len(b.text))
		if n, err := b.from.ReadAt(text, b.at-more); n < len(text) {
			if errors.Is(err, io.EOF) { // nobody else writes
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		b.at, b.text = b.at-more, append(text, b.text...)
	}
}
