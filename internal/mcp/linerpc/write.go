package linerpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// writer is the rpc.Transport of a process: it writes lines to its stdin.
type writer struct {
	conn  *rpc.Conn // whose messages they are
	in    Stream
	stall time.Duration // see Options

	writing  chan struct{}  // holds a token while a message is being written
	together []byte         // of who holds the token, and of who joins: lines that are written at once
	rests    sync.WaitGroup // the goroutines that write what did not fit at once

	waiting, waitingBytes *turns.Shares // of posts

	mu      sync.Mutex // guards the fields that follow
	closed  bool       // Close was called; no goroutine is to begin
	posts   []post     // messages that wait for their turn
	posting bool       // a goroutine is at them
	next    *batch     // takes lines that are to be written with the one whose turn it is; nil for none
}

func newWriter(in Stream, stall time.Duration) *writer {
	return &writer{
		in: in, stall: stall, writing: make(chan struct{}, 1),
		waiting: turns.NewShares(2 * maxPosts), waitingBytes: turns.NewShares(2 * maxPostBytes),
	}
}

// Close implements rpc.Transport.
func (w *writer) Close() {
	w.mu.Lock()
	w.closed = true
	_ = w.in.SetWriteDeadline(time.Unix(1, 0)) // ends a write that hangs; a closed stream has none
	w.mu.Unlock()
	w.rests.Wait()
}

// finish lets nothing be sent any more after what waits for its turn. It reports false if that takes too long.
func (w *writer) finish(late <-chan time.Time) bool {
	for {
		select {
		case w.writing <- struct{}{}:
		case <-w.conn.Over():
			return false
		case <-late:
			return false
		}
		w.mu.Lock()
		done := !w.posting && len(w.posts) == 0
		if done {
			w.conn.GiveUp(errLeft)
		}
		w.mu.Unlock()
		<-w.writing
		if done {
			return true
		}
		runtime.Gosched() // who posts takes its turn
	}
}

// overLocked reports whether nothing is to be written any more.
func (w *writer) overLocked() bool { return w.closed || w.conn.Err() != nil }

// Send implements rpc.Transport. It waits for its turn, and for as much as fits into the
// pipe at once; the rest is written by a goroutine, so that whoever has a
// deadline is not bound to a process that does not read. An error says that
// nothing of it was sent.
func (w *writer) Send(ctx context.Context, call *rpc.Pending, line [][]byte) error {
	if w.join(call, line) {
		return nil
	}
	select {
	case w.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, context.Cause(ctx))
	case <-w.conn.Over():
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, w.conn.Err())
	}
	err := w.conn.Sending(call)
	if ctx.Err() != nil { // the turn may have come with the end, and select has no favourites
		err = context.Cause(ctx)
	}
	if err != nil {
		<-w.writing
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, err)
	}
	return w.writeNow(w.gather(line))
}

// writeNow sends some lines; the caller has put a token into writing. An error says that
// nothing of the first one was sent. The calls of the others end with one then.
func (w *writer) writeNow(b batch) error {
	written := 0
	for i, piece := range b.pieces {
		n, err := tryWrite(w.in, piece)
		if written += n; err == nil && n == len(piece) {
			continue
		}
		if err == nil && w.enter() {
			rest := b.pieces[i+1:]
			go func() {
				defer w.rests.Done()
				defer func() { <-w.writing }()
				if n, err := w.writeRest(piece[n:], rest); err != nil {
					w.fail(b, written+n, err)
				}
			}()
			return nil
		}
		if err == nil {
			err = w.conn.Err()
		} else {
			err = unwritable(err, w.stall)
		}
		w.fail(b, written, err)
		<-w.writing
		if written > 0 {
			return nil // what became of it Close says
		}
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, err)
	}
	<-w.writing
	return nil
}

// fail lets nothing be sent any more, after an error in the midst of a batch.
func (w *writer) fail(b batch, written int, why error) {
	w.unsent(b, written, why) // first: who closes the Conn says of all calls that they were sent
	w.conn.GiveUp(why)
}

// enter counts a goroutine that writes in, unless the Conn is over.
func (w *writer) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overLocked() {
		return false
	}
	w.rests.Add(1)
	return true
}

// writeRest writes what did not fit, and the pieces after it, as the process reads. It
// returns how much was written before an error.
func (w *writer) writeRest(rest []byte, more [][]byte) (written int, err error) {
	for len(rest) > 0 || len(more) > 0 {
		if len(rest) == 0 {
			rest, more = more[0], more[1:]
			continue
		}
		// Each piece has its own time: a slow reader is none that hangs.
		if !w.allow(time.Now().Add(w.stall)) {
			return written, w.conn.Err()
		}
		n, err := w.in.Write(rest[:min(len(rest), 64<<10)])
		rest, written = rest[n:], written+n
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return written, unwritable(err, w.stall)
		}
	}
	w.allow(time.Time{})
	return written, nil
}

// allow sets the time until which may be written, and reports whether the Conn
// is not over: the time that Close has set must stand.
func (w *writer) allow(until time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overLocked() {
		return false
	}
	_ = w.in.SetWriteDeadline(until) // the write says what is wrong
	return true
}

// unwritable tells why a line could not be written whole. Nothing that follows
// on it would be understood.
func unwritable(err error, stall time.Duration) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w for %s", errStalled, stall)
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

// largePost is the size in bytes from which a message counts for largePosts until it is written.
const largePost = 4 << 10

// largePosts bounds the large messages that wait for all processes together: several processes
// that read nothing must not take as much each.
var largePosts = turns.NewShares(2 * maxPostBytes)

// post is a line that waits for its turn.
type post struct {
	line  []byte
	whose turns.Owner
}

// Post implements rpc.Transport: at once, or in its turn.
func (w *writer) Post(whose turns.Owner, line []byte) {
	if len(line) < largePost {
		select {
		case w.writing <- struct{}{}:
			_ = w.writeNow(batch{pieces: [][]byte{line}}) // the Conn is over then, which its owner sees
			return
		default:
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overLocked() || !w.waiting.Try(whose, 1) {
		return
	}
	if !w.waitingBytes.Try(whose, int64(len(line))) {
		w.waiting.Give(whose, 1)
		return
	}
	next := post{line, whose}
	if next.large() && !largePosts.Try(whose, int64(len(line))) {
		w.giveBack(next)
		return
	}
	w.posts = append(w.posts, next)
	if !w.posting {
		w.posting = true
		w.rests.Go(w.postAll)
	}
}

// large reports whether a message counts for largePosts.
func (p post) large() bool { return len(p.line) >= largePost }

// giveBack gives back what a message counts for at this process.
func (w *writer) giveBack(p post) {
	w.waiting.Give(p.whose, 1)
	w.waitingBytes.Give(p.whose, int64(len(p.line)))
}

// postAll sends what waits, line by line.
func (w *writer) postAll() {
	for {
		w.mu.Lock()
		if len(w.posts) == 0 || w.overLocked() {
			rest := w.posts
			w.posts, w.posting = nil, false
			w.mu.Unlock()
			for _, p := range rest {
				if p.large() {
					largePosts.Give(p.whose, int64(len(p.line)))
				}
			}
			return
		}
		next := w.posts[0]
		w.posts[0] = post{}
		w.posts = w.posts[1:]
		w.mu.Unlock()
		_ = w.Send(context.Background(), nil, [][]byte{next.line}) // as above
		if next.large() {
			w.awaitWritten()
			largePosts.Give(next.whose, int64(len(next.line)))
		}
		w.giveBack(next)
	}
}

// awaitWritten waits until what was sent is written, or the Conn is over.
func (w *writer) awaitWritten() {
	select {
	case w.writing <- struct{}{}:
		<-w.writing
	case <-w.conn.Over():
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
