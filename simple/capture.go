package simple

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/secret"
)

// chunk is how much is read at once, and maxRest how much is read at the end
// of a stream that somebody else still writes to: the largest pipe that an
// ordinary user can have.
const (
	chunk   = 32 << 10
	maxRest = 1 << 20
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// capture keeps the first bytes of a stream and counts the rest (SPEC C5).
type capture struct {
	limit   int64
	kept    []byte
	dropped int64
	torn    bool // the writer was ended, maybe in the middle of a rune
}

func (c *capture) write(p []byte) {
	room := int(min(int64(len(p)), c.limit-int64(len(c.kept))))
	c.kept = append(c.kept, p[:room]...)
	c.dropped += int64(len(p) - room)
}

// readFrom reads f to its end, or until f's deadline passes and the pipe is
// empty, and closes it.
func (c *capture) readFrom(f *os.File) {
	defer func() { _ = f.Close() }() // only read
	buf, _ := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := f.Read(buf[:])
		c.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.readRest(f, buf[:])
			return
		}
		if err != nil {
			return // io.EOF, or a pipe that is gone, which is the same
		}
	}
}

// readRest takes what is in the pipe now without waiting for more.
func (c *capture) readRest(f *os.File, buf []byte) {
	if f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // the error would be a closed file
		for rest := maxRest; rest > 0; {
			n, err := syscall.Read(int(fd), buf)
			if err == syscall.EINTR {
				continue
			}
			if n <= 0 || err != nil {
				break // io.EOF, EAGAIN: nothing is left
			}
			c.write(buf[:n])
			rest -= n
		}
		return true
	})
}

// redact takes secrets out of what was kept, and what may be the beginning of one
// where the rest is dropped (SPEC-TOOLS 5.3).
func (c *capture) redact(r *secret.Redactor) {
	c.kept = r.RedactBytes(c.kept)
	if c.dropped > 0 {
		whole := len(c.kept)
		c.kept = r.TrimBytes(c.kept)
		c.dropped += int64(whole - len(c.kept))
	}
}

// text returns what was kept as text, and false when it is none. A rune that
// the limit or the writer's end cut in two is left out.
func (c *capture) text() (string, bool) {
	kept := c.kept
	if c.dropped > 0 || c.torn {
		for i := 1; i < utf8.UTFMax && i <= len(kept); i++ {
			if tail := kept[len(kept)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					kept = kept[:len(kept)-i]
				}
				break
			}
		}
	}
	return string(kept), utf8.Valid(kept)
}
