package podio

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
)

// maxKept bounds what is kept of a line to find it again in the log.
const maxKept = 1 << 10

// errTorn is why the rest of a line cannot be had.
var errTorn = errors.New("the rest of a line that it wrote then is lost")

// track is where one stream of a process goes. It knows the last whole lines, and what it has of the next one. It
// belongs to one goroutine at a time.
type track struct {
	to io.Writer

	last mark
	open mark // the begin of a line that has not ended
	any  bool // there was a whole line
	had  recent
}

// recent has the hashes of the last lines of a track, as many as are searched for in the log.
type recent struct {
	lines []uint64
	next  int // where the next one is put, once there are maxTail
}

// seed keeps a process from writing lines with the same hash on purpose.
var seed = maphash.MakeSeed()

func (r *recent) add(hash uint64) {
	if len(r.lines) < maxTail {
		r.lines = append(r.lines, hash)
		return
	}
	r.lines[r.next] = hash
	r.next = (r.next + 1) % maxTail
}

// counts says how often there was each line.
func (r *recent) counts() map[uint64]int {
	counts := make(map[uint64]int, len(r.lines))
	for _, hash := range r.lines {
		counts[hash]++
	}
	return counts
}

// mark is a line, as far as it is kept.
type mark struct {
	kept []byte
	size int
	hash maphash.Hash // of all of it
}

func (m *mark) add(p []byte) {
	m.kept = append(m.kept, p[:min(len(p), maxKept-len(m.kept))]...)
	if m.size == 0 {
		m.hash.SetSeed(seed)
	}
	m.size += len(p)
	_, _ = m.hash.Write(p) // it never fails
}

// sum is the hash of the line.
func (m *mark) sum() uint64 {
	if m.size == 0 {
		m.hash.SetSeed(seed)
	}
	return m.hash.Sum64()
}

// is reports whether the mark is of a line.
func (m *mark) is(line []byte) bool { return m.size == len(line) && bytes.HasPrefix(line, m.kept) }

// Write passes on p as it comes.
func (t *track) Write(p []byte) (int, error) {
	t.note(p)
	return t.to.Write(p)
}

func (t *track) note(p []byte) {
	for {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		t.open.add(line)
		if !whole {
			return
		}
		t.had.add(t.open.sum())
		t.last, t.open, t.any = t.open, mark{kept: t.last.kept[:0]}, true
		p = rest
	}
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
