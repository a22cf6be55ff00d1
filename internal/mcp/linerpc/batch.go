package linerpc

import (
	"fmt"
	"runtime"

	"github.com/orla-project/orla/internal/mcp/rpc"
)

const (
	batchSize = 32 << 10 // bytes of what is written together: half of what a pipe holds
	longLine  = 16 << 10 // from here on a line is written without others
)

// batch is one line or more that are written together: a write costs more than to make a
// short line, and the process is woken once.
type batch struct {
	pieces [][]byte
	size   int      // in bytes
	joined []joined // the lines after the first one
}

// joined is a line of a call that somebody else writes.
type joined struct {
	call *rpc.Pending
	at   int // where it begins
}

// gather returns a line, whose turn it is, with those of other calls that are as far.
func (w *writer) gather(line [][]byte) batch {
	b := batch{pieces: line, size: sizeOf(line)}
	if b.size > longLine || w.conn.InFlight() < 2 {
		if len(line) > 1 && b.size <= batchSize {
			w.copy(&b)
		}
		return b
	}
	w.mu.Lock()
	w.next = &b
	w.mu.Unlock()
	runtime.Gosched() // the others may be as far
	w.mu.Lock()
	w.next = nil
	w.mu.Unlock()
	for _, j := range b.joined {
		_ = w.conn.Sending(j.call) // the write says that the Conn is over
	}
	return b
}

// join gives the line of a call to who is about to write one. It reports false where
// nobody is, or the line is long.
func (w *writer) join(call *rpc.Pending, line [][]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, size := w.next, sizeOf(line)
	if b == nil || call == nil || size > longLine || b.size+size > batchSize {
		return false
	}
	if len(b.joined) == 0 {
		w.copy(b)
	}
	for _, piece := range line {
		w.together = append(w.together, piece...)
	}
	b.pieces = [][]byte{w.together}
	b.joined = append(b.joined, joined{call, b.size})
	b.size += size
	return true
}

// copy makes one piece of a batch, of who has the turn.
func (w *writer) copy(b *batch) {
	w.together = w.together[:0] // nobody else has the turn
	for _, piece := range b.pieces {
		w.together = append(w.together, piece...)
	}
	b.pieces = [][]byte{w.together}
}

func sizeOf(line [][]byte) (size int) {
	for _, piece := range line {
		size += len(piece)
	}
	return size
}

// unsent ends the calls that have joined a batch and of whose lines nothing was sent.
func (w *writer) unsent(b batch, written int, why error) {
	for _, j := range b.joined {
		if j.at >= written {
			w.conn.Fail(j.call.ID, fmt.Errorf("%w: %w", rpc.ErrNotSent, why))
		}
	}
}
