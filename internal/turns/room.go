package turns

import (
	"context"
	"io"
	"sync"
)

// Little is how many bytes of each call nobody counts.
const Little = 64 << 10

// step is what is taken at a time, so that a long stream does not ask for each
// of its pieces.
const step = 256 << 10

// Room bounds the bytes that many hold together, each as much as comes. Who needs
// more than there is waits, with what it holds, and so all could wait for each
// other: one at a time may go on beyond the limit, until it lets go of everything.
type Room struct {
	bytes  *Turns
	beyond chan struct{} // holds a token while one is beyond the limit
}

// NewRoom returns a Room of so many bytes.
func NewRoom(limit int64) *Room {
	return &Room{bytes: New(limit), beyond: make(chan struct{}, 1)}
}

// Free returns how many bytes nobody holds.
func (r *Room) Free() int64 { return r.bytes.Free() }

// Held is what one call holds of a Room. Its methods may be called from any
// goroutine, and do nothing on nil.
type Held struct {
	room *Room

	mu     sync.Mutex // guards the fields that follow
	needed int64      // bytes that it has said it needs
	taken  int64      // of the room
	beyond bool       // it is beyond the limit
	closed bool
}

// roomKey is the key of a *Held.
type roomKey struct{}

// Hold returns a context for one call, which what answers it finds by HeldBy. The
// function that it returns lets go of all that the call holds.
func (r *Room) Hold(ctx context.Context) (context.Context, func()) {
	h := &Held{room: r}
	return context.WithValue(ctx, roomKey{}, h), h.close
}

// HeldBy returns what the call of a context holds; nil where nothing is counted.
func HeldBy(ctx context.Context) *Held {
	h, _ := ctx.Value(roomKey{}).(*Held)
	return h
}

// Need says that n bytes more are to be held, and waits until there is room for
// them, or ctx ends.
func (h *Held) Need(ctx context.Context, n int64) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	h.needed += n
	lacks := h.needed - Little - h.taken
	if lacks <= 0 || h.beyond || h.closed {
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	lacks = max(lacks, step)
	beyond, err := h.room.take(ctx, lacks)
	if err != nil {
		return err
	}
	h.mu.Lock()
	keep := !h.closed && (!beyond || !h.beyond)
	switch {
	case keep && beyond:
		h.beyond = true
	case keep:
		h.taken += lacks
	}
	h.mu.Unlock()
	switch { // the call is over, or another stream of it was faster
	case keep:
	case beyond:
		<-h.room.beyond
	default:
		h.room.bytes.Give(lacks)
	}
	return nil
}

// take waits for n bytes, or for leave to go beyond the limit.
func (r *Room) take(ctx context.Context, n int64) (beyond bool, err error) {
	if r.bytes.Try(n) {
		return false, nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	took := make(chan error, 1)
	go func() { took <- r.bytes.Take(waiting, "", n) }() // take waits for it
	select {
	case err := <-took:
		return false, err
	case r.beyond <- struct{}{}:
	}
	cancel()
	if <-took == nil {
		<-r.beyond // it is not needed after all
		return false, nil
	}
	return true, nil
}

// close lets go of everything.
func (h *Held) close() {
	h.mu.Lock()
	taken, beyond := h.taken, h.beyond
	h.taken, h.beyond, h.closed = 0, false, true
	h.mu.Unlock()
	h.room.bytes.Give(taken)
	if beyond {
		<-h.room.beyond
	}
}

// Reader returns r, of which no more is read than there is room for.
func (h *Held) Reader(ctx context.Context, r io.Reader) io.Reader {
	if h == nil {
		return r
	}
	return &counted{ctx: ctx, held: h, r: r}
}

// counted is a reader whose bytes are held.
type counted struct {
	ctx  context.Context // an io.Reader is told none
	held *Held
	r    io.Reader
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if wait := c.held.Need(c.ctx, int64(n)); wait != nil {
		return n, wait
	}
	return n, err
}
