package linerpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// write sends one line. It waits for its turn, and for as much as fits into the
// pipe at once; the rest is written by a goroutine, so that whoever has a
// deadline is not bound to a process that does not read.
func (c *Conn) write(ctx context.Context, line []byte) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.over:
		return fmt.Errorf("%w: %w", ErrNotSent, c.Err())
	}
	return c.writeNow(line)
}

// writeNow sends one line; the caller has put a token into writing.
func (c *Conn) writeNow(line []byte) error {
	n, err := tryWrite(c.in, line)
	if err != nil {
		<-c.writing
		if err = c.giveUp(err); n == 0 {
			err = fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return err
	}
	if n == len(line) {
		<-c.writing
		return nil
	}
	c.mu.Lock()
	closed := c.closed
	if closed == nil {
		c.rests.Add(1)
	}
	c.mu.Unlock()
	if closed != nil { // part of a line went out, to a process that is over
		<-c.writing
		return closed
	}
	go func() {
		defer c.rests.Done()
		c.writeRest(line[n:])
	}()
	return nil
}

// writeRest writes what did not fit, as the process reads.
func (c *Conn) writeRest(rest []byte) {
	defer func() { <-c.writing }()
	for len(rest) > 0 {
		// Each piece has its own time: a slow reader is none that hangs.
		_ = c.in.SetWriteDeadline(time.Now().Add(c.opts.Stall))
		select {
		case <-c.over: // Close has set a deadline that must stand
			return
		default:
		}
		piece := rest[:min(len(rest), 64<<10)]
		n, err := c.in.Write(piece)
		rest = rest[n:]
		if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			_ = c.giveUp(err)
			return
		}
	}
}

// giveUp ends the Conn after a line that could not be written whole: nothing
// that follows would be understood.
func (c *Conn) giveUp(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w for %s", ErrStalled, c.opts.Stall)
	} else {
		err = fmt.Errorf("write to its stdin: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = err
		close(c.over)
		for id, p := range c.pending {
			p.events <- Event{Err: err}
			delete(c.pending, id)
		}
		c.settleLocked()
	}
	return c.closed
}

// post sends a line in its turn, from a goroutine of its own if that is not now.
func (c *Conn) post(line []byte) {
	select {
	case c.writing <- struct{}{}:
		_ = c.writeNow(line) // the Conn is over then, which its owner sees
		return
	default:
	}
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return
	}
	c.rests.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.rests.Done()
		_ = c.write(context.Background(), line) // as above
	}()
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
