package turns

import (
	"context"
	"io"
	"sync"
)

// Little is how many bytes of each call are not counted.
const Little = 64 << 10

// step is how many bytes are taken at a time, so that a long stream does not take each of its pieces.
const step = 256 << 10

// Room bounds the bytes that calls hold together, and the part of each caller and session (Shares). A call
// holds more bytes as they come. A call without room waits and keeps what it holds, so that all calls could
// wait for each other. To prevent that, one call at a time may exceed the limit, until it gives back
// everything.
type Room struct {
	bytes  *Shares
	hand   *Shares       // of bytes that came already and wait for room; see Held.Later
	beyond chan struct{} // holds a token while a call exceeds the limit
}

// NewRoom returns a Room of limit bytes, and half as many in hand.
func NewRoom(limit int64) *Room {
	return &Room{bytes: NewShares(limit), hand: NewShares(limit / 2), beyond: make(chan struct{}, 1)}
}

// Resize changes the limit. Calls keep what they hold.
func (r *Room) Resize(limit int64) {
	r.bytes.Resize(limit)
	r.hand.Resize(limit / 2)
}

// Free returns how many bytes are free, without those in hand.
func (r *Room) Free() int64 { return r.bytes.Free() }

// InHand returns how many bytes wait in hand.
func (r *Room) InHand() int64 { return r.hand.Taken() }

// Held is what one call holds of a Room. Its methods may be called from any
// goroutine, and do nothing on nil.
type Held struct {
	room  *Room
	owner Owner

	mu     sync.Mutex // guards the fields that follow
	needed int64      // bytes that it needs
	taken  int64      // bytes of the room
	hand   int64      // bytes in hand
	beyond bool       // it may exceed the limit
	closed bool
}

// roomKey is the key of a *Held.
type roomKey struct{}

// Hold returns a context for one call of an owner, in which HeldBy finds what the call holds. The function
// that it returns gives back everything.
func (r *Room) Hold(ctx context.Context, owner Owner) (context.Context, func()) {
	h := &Held{room: r, owner: owner}
	return context.WithValue(ctx, roomKey{}, h), h.close
}

// HeldBy returns what the call of a context holds; nil if nothing is counted.
func HeldBy(ctx context.Context) *Held {
	h, _ := ctx.Value(roomKey{}).(*Held)
	return h
}

// Beside returns a new Held of the same owner and room, for something else, and a function that gives back
// what it holds.
func (h *Held) Beside() (other *Held, release func()) {
	if h == nil {
		return nil, func() {}
	}
	other = &Held{room: h.room, owner: h.owner}
	return other, other.close
}

// Pass moves everything that h holds to another Held of the same owner and room. It does nothing if
// the other one is closed.
func (h *Held) Pass(to *Held) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.closed {
		return
	}
	to.needed += h.needed
	to.taken += h.taken
	to.hand += h.hand
	to.beyond = to.beyond || h.beyond // at most one call may exceed the limit
	h.needed, h.taken, h.hand, h.beyond = 0, 0, 0, false
}

// Owner returns the owner of the call; the zero Owner on nil.
func (h *Held) Owner() Owner {
	if h == nil {
		return Owner{}
	}
	return h.owner
}

// Covers reports whether the call has already taken so much that Need(n) would not wait.
func (h *Held) Covers(n int64) bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.coversLocked(n)
}

func (h *Held) coversLocked(n int64) bool {
	return h.needed+n-Little <= h.taken || h.beyond || h.closed
}

// Need adds n bytes to what the call holds. It waits until there is room for them, or ctx ends.
func (h *Held) Need(ctx context.Context, n int64) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	covered := h.coversLocked(n)
	h.needed += n
	lacks := max(h.needed-Little-h.taken, step)
	h.mu.Unlock()
	if covered {
		return nil
	}
	beyond, err := h.room.take(ctx, h.owner, lacks)
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
	switch { // the call may have ended, or another stream of it have taken room
	case keep:
	case beyond:
		<-h.room.beyond
	default:
		h.room.bytes.Give(h.owner, lacks)
	}
	return nil
}

// take waits for n bytes, or for the permission to exceed the limit.
func (r *Room) take(ctx context.Context, owner Owner, n int64) (beyond bool, err error) {
	if r.bytes.Try(owner, n) {
		return false, nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	took := make(chan error, 1)
	go func() { took <- r.bytes.Take(waiting, owner, n) }() // take waits for it
	select {
	case err := <-took:
		if err == nil && ctx.Err() != nil { // both have come, and select has no favourites
			r.bytes.Give(owner, n)
			err = context.Cause(ctx)
		}
		return false, err
	case r.beyond <- struct{}{}:
	}
	cancel()
	room := <-took == nil
	if room {
		<-r.beyond // it is not needed after all
	}
	if ctx.Err() == nil {
		return !room, nil
	}
	if room { // the end has come with it
		r.bytes.Give(owner, n)
	} else {
		<-r.beyond
	}
	return false, context.Cause(ctx)
}

// Later takes n bytes in hand, if there is room in hand: for a goroutine that has the bytes already and must
// not wait. Settle waits in its place.
func (h *Held) Later(n int64) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || !h.room.hand.Try(h.owner, n) {
		return false
	}
	h.hand += n
	return true
}

// Settle waits until there is room for n bytes that are in hand, or ctx ends.
func (h *Held) Settle(ctx context.Context, n int64) error {
	err := h.Need(ctx, n)
	h.mu.Lock()
	given := min(n, h.hand) // none if it is closed
	h.hand -= given
	h.mu.Unlock()
	h.room.hand.Give(h.owner, given)
	return err
}

// close gives back everything.
func (h *Held) close() {
	h.mu.Lock()
	taken, hand, beyond := h.taken, h.hand, h.beyond
	h.taken, h.hand, h.beyond, h.closed = 0, 0, false, true
	h.mu.Unlock()
	h.room.bytes.Give(h.owner, taken)
	h.room.hand.Give(h.owner, hand)
	if beyond {
		<-h.room.beyond
	}
}

// Reader returns a reader of r that reads only as much as there is room for.
func (h *Held) Reader(ctx context.Context, r io.Reader) io.Reader {
	if h == nil {
		return r
	}
	return &counted{ctx: ctx, held: h, r: r}
}

// counted is a reader whose bytes are held.
type counted struct {
	ctx  context.Context // for Read, which takes none
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
