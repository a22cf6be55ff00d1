package linerpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/turns"
)

// write sends one line. It waits for its turn, and for as much as fits into the
// pipe at once; the rest is written by a goroutine, so that whoever has a
// deadline is not bound to a process that does not read. An error says that
// nothing of it was sent.
func (c *Conn) write(ctx context.Context, p *pending, line [][]byte) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
	case <-c.over:
		return fmt.Errorf("%w: %w", ErrNotSent, c.Err())
	}
	c.mu.Lock()
	err := c.closed
	if c.sent++; p != nil {
		p.place = c.sent
	}
	c.mu.Unlock()
	if ctx.Err() != nil { // the turn may have come with the end, and select has no favourites
		err = context.Cause(ctx)
	}
	if err != nil {
		<-c.writing
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return c.writeNow(line)
}

// writeNow sends one line, which is in pieces; the caller has put a token into
// writing. An error says that nothing of it was sent.
func (c *Conn) writeNow(line [][]byte) error {
	sent := false
	for i, piece := range line {
		n, err := tryWrite(c.in, piece)
		sent = sent || n > 0
		if err != nil {
			err = unwritable(err, c.opts.Stall)
			c.giveUp(err)
			<-c.writing
			if sent {
				return nil // what became of it Close says
			}
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		if n == len(piece) {
			continue
		}
		if !c.enter() {
			<-c.writing
			if sent {
				return nil // as above
			}
			return fmt.Errorf("%w: %w", ErrNotSent, c.Err())
		}
		rest := line[i+1:]
		go func() {
			defer c.rests.Done()
			defer func() { <-c.writing }()
			c.writeRest(piece[n:], rest)
		}()
		return nil
	}
	<-c.writing
	return nil
}

// enter counts a goroutine that writes in, unless the Conn is over.
func (c *Conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.rests.Add(1)
	}
	return c.closed == nil
}

// writeRest writes what did not fit, and the pieces after it, as the process reads.
func (c *Conn) writeRest(rest []byte, more [][]byte) {
	for len(rest) > 0 || len(more) > 0 {
		if len(rest) == 0 {
			rest, more = more[0], more[1:]
			continue
		}
		// Each piece has its own time: a slow reader is none that hangs.
		if !c.allow(time.Now().Add(c.opts.Stall)) {
			return
		}
		n, err := c.in.Write(rest[:min(len(rest), 64<<10)])
		rest = rest[n:]
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			c.giveUp(unwritable(err, c.opts.Stall))
			return
		}
	}
	c.allow(time.Time{})
}

// allow sets the time until which may be written, and reports whether the Conn
// is not over: the time that Close has set must stand.
func (c *Conn) allow(until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return false
	}
	_ = c.in.SetWriteDeadline(until) // the write says what is wrong
	return true
}

// unwritable tells why a line could not be written whole. Nothing that follows
// on it would be understood.
func unwritable(err error, stall time.Duration) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w for %s", ErrStalled, stall)
	}
	return fmt.Errorf("write to its stdin: %w", err)
}

// maxPosts and maxPostBytes bound the messages of one caller that wait for their turn; all
// may have twice as many (turns.Shares). A process that asks without an end and reads no
// answer loses those after them.
const (
	maxPosts     = 1024
	maxPostBytes = 32 << 20
)

// post is a line that waits for its turn.
type post struct {
	line  []byte
	whose turns.Line
}

// post sends a line that nobody waits for: at once, or in its turn. It takes a share of
// what may wait.
func (c *Conn) post(whose turns.Line, line []byte) {
	select {
	case c.writing <- struct{}{}:
		_ = c.writeNow([][]byte{line}) // the Conn is over then, which its owner sees
		return
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil || !c.waiting.Try(whose, 1) {
		return
	}
	if !c.waitingBytes.Try(whose, int64(len(line))) {
		c.waiting.Give(whose, 1)
		return
	}
	c.posts = append(c.posts, post{line, whose})
	if !c.posting {
		c.posting = true
		c.rests.Go(c.postAll)
	}
}

// postAll sends what waits, line by line.
func (c *Conn) postAll() {
	for {
		c.mu.Lock()
		if len(c.posts) == 0 || c.closed != nil {
			c.posts, c.posting = nil, false
			c.mu.Unlock()
			return
		}
		next := c.posts[0]
		c.posts = c.posts[1:]
		c.mu.Unlock()
		c.waiting.Give(next.whose, 1)
		c.waitingBytes.Give(next.whose, int64(len(next.line)))
		_ = c.write(context.Background(), nil, [][]byte{next.line}) // as above
	}
}

// tryWrite writes what a stream takes without waiting.
func tryWrite(s Stream, line []byte) (n int, err error) {
	f, ok := s.(*os.File)
	if !ok {
		return 0, nil // no way to ask
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for n < len(line) {
			m, err := syscall.Write(int(fd), line[n:])
			switch {
			case m > 0:
				n += m
			case err == syscall.EINTR:
			case err == syscall.EAGAIN:
				return true
			default:
				failed = err
				return true
			}
		}
		return true
	})
	if failed != nil {
		return n, failed
	}
	return n, err
}
