// Package linerpc carries JSON-RPC 2.0 over the stdin and stdout of a process, one
// message on each line (RFC 2 §8.2, SPEC D5). The calls themselves are internal/mcp/rpc's.
//
// Its invariant: reading never waits for a write, so that a process that writes
// while it does not read cannot be locked up with us.
package linerpc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/mcp/rpc"
)

// Stream is one end of a pipe. An *os.File and a net.Conn are Streams.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// Options configures a Conn.
type Options struct {
	rpc.Options
	// MaxMessage bounds a line from the process in bytes. Required.
	MaxMessage int
	// Stall is how long the process may leave a message in the pipe without
	// reading from it. Past it the stream is given up. Required.
	Stall time.Duration
	// Unread is the begin of a line that an earlier Conn has read; see Leave.
	Unread []byte
	// Spare reports whether a line may be left out where calls of other callers would wait for it, and the id of the call
	// that it names; 0 for none. If nil, no line may be.
	Spare func(line []byte) (call int64, spare bool)
	// LeftOut, if not nil, is called with the number of lines that were left out since the last time: once a minute at
	// most, and at the end.
	LeftOut func(lines int)
}

// errStalled is why a Conn is over whose process does not read.
var errStalled = errors.New("the process does not read its stdin")

// Conn is a connection with one process. Its methods may be called from any
// goroutine, but Serve only once.
type Conn struct {
	*rpc.Conn

	w   *writer
	out Stream
	max int // bytes of a line

	spare func(line []byte) (call int64, spare bool) // see Options.Spare
	left  func(lines int)                            // see Options.LeftOut

	unread  []byte      // see Options.Unread, and Leave
	leaving atomic.Bool // Leave was called
	whole   bool        // all that was read is in unread, or was taken; set by Serve if leaving
	served  chan struct{}
}

// New returns a Conn that writes to in and reads from out. The streams stay the
// caller's to close.
func New(in, out Stream, opts Options) *Conn {
	w := newWriter(in, opts.Stall)
	c := &Conn{Conn: rpc.New(w, opts.Options), w: w, out: out, max: opts.MaxMessage, unread: opts.Unread, spare: opts.Spare, left: opts.LeftOut, served: make(chan struct{})}
	w.conn = c.Conn
	return c
}

// Serve reads until the process closes its stdout, or a read deadline passes,
// and returns why it ended. Calls stay pending until Close.
func (c *Conn) Serve() error {
	defer close(c.served)
	from := sifter{conn: c, from: c.out}
	defer from.tell(0)
	lines := lineReader{r: &from, max: c.max, skips: from.leavesOut, dropped: func(n int) { from.unasked(0, n) }}
	lines.buf, lines.end = c.unread, len(c.unread)
	for {
		line, err := lines.next()
		if c.leaving.Load() && !line.cut && errors.Is(err, os.ErrDeadlineExceeded) {
			c.unread, c.whole = line.data, true
			return err
		}
		unasked := 0
		if line.cut {
			c.tooLong(line.data, line.tail)
		} else {
			unasked = c.Receive(line.data)
		}
		if err != nil {
			return err
		}
		if unasked > 0 {
			from.unasked(unasked, len(line.data))
		}
	}
}

// errLeft is why a Conn is over that Leave has ended.
var errLeft = errors.New("another program has taken over the process")

// Leave ends the Conn, and leaves the process as it is: what was to be sent is sent, whole lines that have come are
// taken, and the begin of a line that has not ended is returned. Another Conn can go on after that. It reports false
// if this does not succeed within a time; the Conn is over then too. No call should be pending.
func (c *Conn) Leave(within time.Duration) (unread []byte, ok bool) {
	late := time.NewTimer(within)
	defer late.Stop()
	if !c.w.finish(late.C) {
		c.GiveUp(errLeft)
		return nil, false
	}
	c.leaving.Store(true)
	_ = c.out.SetReadDeadline(time.Unix(1, 0)) // ends the wait of Serve
	select {
	case <-c.served:
		return c.unread, c.whole
	case <-late.C:
		return nil, false
	}
}
