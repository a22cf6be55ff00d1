package podio

import (
	"bytes"
	"errors"
	"io"
)

// maxKept bounds what is kept of a line to find it again in the log.
const maxKept = 1 << 10

// errTorn is why the rest of a line cannot be had.
var errTorn = errors.New("the rest of a line that it wrote then is lost")

// track is where one stream of a process goes. It knows the last whole line, and what it has of the next one. It
// belongs to one goroutine at a time.
type track struct {
	to io.Writer

	last mark
	open mark // the begin of a line that has not ended
	any  bool // there was a whole line
}

// mark is a line, as far as it is kept.
type mark struct {
	kept []byte
	size int
}

func (m *mark) add(p []byte) {
	m.kept = append(m.kept, p[:min(len(p), maxKept-len(m.kept))]...)
	m.size += len(p)
}

// is reports whether the mark is of a line.
func (m *mark) is(line []byte) bool { return m.size == len(line) && bytes.HasPrefix(line, m.kept) }

// Write passes on p as it comes.
func (t *track) Write(p []byte) (int, error) {
	t.note(p)
	return t.to.Write(p)
}

func (t *track) note(p []byte) {
	end := bytes.LastIndexByte(p, '\n')
	if end < 0 {
		t.open.add(p)
		return
	}
	begin := bytes.LastIndexByte(p[:end], '\n') + 1
	if begin > 0 {
		t.open = mark{}
	}
	t.open.add(p[begin:end])
	t.last, t.any = t.open, true
	t.open = mark{}
	t.open.add(p[end+1:])
}

// line passes on a whole line, or what is missing of it. The begin of the line that is there already has to be its
// own.
func (t *track) line(line []byte) error {
	if t.open.size > len(line) || !bytes.HasPrefix(line, t.open.kept) {
		return errTorn
	}
	_, err := t.Write(append(bytes.Clone(line[t.open.size:]), '\n'))
	return err
}
