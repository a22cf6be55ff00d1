package turns

import (
	"context"
	"io"
	"runtime"
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
	bytes   *Shares
	hand    *Shares       // of bytes that came already and wait for room; see Account.Later
	beyond  chan struct{} // holds a token while a call exceeds the limit
	working *Queue        // see Account.Work
}

// NewRoom returns a Room of limit bytes, and half as many in hand.
func NewRoom(limit int64) *Room {
	return &Room{bytes: NewShares(limit), hand: NewShares(limit / 2), beyond: make(chan struct{}, 1), working: NewCapped(runtime.GOMAXPROCS(0), Workers())}
}

// Resize changes the limit. Calls keep what they hold.
func (r *Room) Resize(limit int64) {
	r.bytes.Resize(limit)
	r.hand.Resize(limit / 2)
}

// Free returns how many bytes are free, without those in hand.
func (r *Room) Free() int64 { return r.bytes.Free() }

// Try takes n bytes for an owner if there is room for them now, and returns what gives them back.
func (r *Room) Try(owner Owner, n int64) (release func(), ok bool) {
	if !r.bytes.Try(owner, n) {
		return nil, false
	}
	return func() { r.bytes.Give(owner, n) }, true
}

// InHand returns how many bytes wait in hand.
func (r *Room) InHand() int64 { return r.hand.Taken() }

// Account is what one call has of a Room. Its methods may be called from any
// goroutine, and do nothing on nil.
type Account struct {
	room  *Room
	owner Owner

	mu     sync.Mutex // guards the fields that follow
	needed int64      // bytes that it needs
	taken  int64      // bytes of the room
	hand   int64      // bytes in hand
	beyond bool       // it may exceed the limit
	closed bool
}

// roomKey is the key of an *Account.
type roomKey struct{}

// opened is a context with an Account.
type opened struct {
	context.Context
	account Account
}

// Value implements context.Context.
func (o *opened) Value(k any) any {
	if _, ok := k.(roomKey); ok {
		return &o.account
	}
	return o.Context.Value(k)
}

// Open returns a context for one call of an owner, in which AccountOf finds the account of the call. The function
// that it returns gives back everything.
func (r *Room) Open(ctx context.Context, owner Owner) (context.Context, func()) {
	o := &opened{ctx, Account{room: r, owner: owner}}
	return o, o.account.close
}

// AccountOf returns the account of the call of a context; nil if nothing is counted.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(roomKey{}).(*Account)
	return a
}

// Beside returns a new Account of the same owner and room, for something else, and a function that gives back
// what it holds.
func (a *Account) Beside() (other *Account, release func()) {
	if a == nil {
		return nil, func() {}
	}
	other = &Account{room: a.room, owner: a.owner}
	return other, other.close
}

// Pass moves everything that a holds to another Account of the same owner and room. It does nothing if
// the other one is closed.
func (a *Account) Pass(to *Account) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.closed {
		return
	}
	to.needed += a.needed
	to.taken += a.taken
	to.hand += a.hand
	to.beyond = to.beyond || a.beyond // at most one call may exceed the limit
	a.needed, a.taken, a.hand, a.beyond = 0, 0, 0, false
}

// Owner returns the owner of the call; the zero Owner on nil.
func (a *Account) Owner() Owner {
	if a == nil {
		return Owner{}
	}
	return a.owner
}

// Covers reports whether the call has already taken so much that Need(n) would not wait.
func (a *Account) Covers(n int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.coversLocked(n)
}

func (a *Account) coversLocked(n int64) bool {
	return a.needed+n-Little <= a.taken || a.beyond || a.closed
}

// Need adds n bytes to what the call holds. It waits until there is room for them, or ctx ends.
func (a *Account) Need(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	covered := a.coversLocked(n)
	a.needed += n
	lacks := max(a.needed-Little-a.taken, step)
	a.mu.Unlock()
	if covered {
		return nil
	}
	beyond, err := a.room.take(ctx, a.owner, lacks)
	if err != nil {
		return err
	}
	a.mu.Lock()
	keep := !a.closed && (!beyond || !a.beyond)
	switch {
	case keep && beyond:
		a.beyond = true
	case keep:
		a.taken += lacks
	}
	a.mu.Unlock()
	switch { // the call may have ended, or another stream of it have taken room
	case keep:
	case beyond:
		<-a.room.beyond
	default:
		a.room.bytes.Give(a.owner, lacks)
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
func (a *Account) Later(n int64) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || !a.room.hand.Try(a.owner, n) {
		return false
	}
	a.hand += n
	return true
}

// Settle waits until there is room for n bytes that are in hand, or ctx ends.
func (a *Account) Settle(ctx context.Context, n int64) error {
	err := a.Need(ctx, n)
	a.mu.Lock()
	given := min(n, a.hand) // none if it is closed
	a.hand -= given
	a.mu.Unlock()
	a.room.hand.Give(a.owner, given)
	return err
}

// close gives back everything.
func (a *Account) close() {
	a.mu.Lock()
	taken, hand, beyond := a.taken, a.hand, a.beyond
	a.taken, a.hand, a.beyond, a.closed = 0, 0, false, true
	a.mu.Unlock()
	a.room.bytes.Give(a.owner, taken)
	a.room.hand.Give(a.owner, hand)
	if beyond {
		<-a.room.beyond
	}
}

// Reader returns a reader of r that reads only as much as there is room for.
func (a *Account) Reader(ctx context.Context, r io.Reader) io.Reader {
	if a == nil {
		return r
	}
	return &counted{ctx: ctx, account: a, r: r}
}

// counted is a reader whose bytes are counted.
type counted struct {
	ctx     context.Context // for Read, which takes none
	account *Account
	r       io.Reader
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if wait := c.account.Need(c.ctx, int64(n)); wait != nil {
		return n, wait
	}
	return n, err
}
