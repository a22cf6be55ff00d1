package listen

import (
	"bytes"
	"strconv"
	"sync"
)

const (
	// fullBuffer is the size of net/http's buffer of a connection. A write of as many bytes is followed by others.
	fullBuffer = 4 << 10
	// mostGathered bounds an answer that is gathered, with its headers.
	mostGathered = 32 << 10
)

// gathered is the beginning of an answer. net/http would write one of 16 KiB in three pieces, each of which costs about as much
// as the whole and wakes the client.
type gathered struct {
	buf  *[mostGathered]byte // nil if nothing is gathered
	n    int                 // bytes of buf
	size int                 // of the whole answer
}

// gatherings are the buffers of answers that are written now.
var gatherings = sync.Pool{New: func() any { return new([mostGathered]byte) }}

// add adds what net/http writes. It returns what is to be written now; nil if more of the answer follows at once.
func (g *gathered) add(p []byte) []byte {
	g.n += copy(g.buf[g.n:], p)
	if g.n < g.size {
		return nil
	}
	return g.buf[:g.n]
}

// begin reports whether p begins an answer that is gathered.
func (g *gathered) begin(p []byte) bool {
	if g.size = sizeOf(p); g.size <= len(p) || g.size > mostGathered {
		return false
	}
	g.buf, _ = gatherings.Get().(*[mostGathered]byte)
	return true
}

// end forgets what was gathered.
func (g *gathered) end() {
	gatherings.Put(g.buf)
	*g = gathered{}
}

// sizeOf returns the size of an answer that begins with whole headers; 0 if it is not known.
func sizeOf(begin []byte) int {
	head, _, whole := bytes.Cut(begin, []byte("\r\n\r\n"))
	_, length, told := bytes.Cut(head, []byte("\r\nContent-Length: "))
	if !whole || !told {
		return 0
	}
	length, _, _ = bytes.Cut(length, []byte("\r\n"))
	n, err := strconv.Atoi(string(length))
	if err != nil {
		return 0
	}
	return len(head) + len("\r\n\r\n") + n
}

// gathers reports whether p, which net/http writes, is a part of an answer that is gathered: the front has told its length, and
// writes it to its end at once. A stream goes out as it comes. None begins once the handler has returned: what net/http writes then
// may be all that there is, as for a HEAD, whose headers have a length too.
func (c *conn) gathers(p []byte) bool {
	if c.gathered.buf != nil {
		return true
	}
	if len(p) != fullBuffer {
		return false
	}
	c.mu.Lock()
	phase := c.phase
	c.mu.Unlock()
	return phase == taken && c.gathered.begin(p)
}
