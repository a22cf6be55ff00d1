package listen

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/orla-project/orla/internal/call/turns"
)

// connections bounds the open connections of all listeners. A connection is pending
// until a request on it is admitted; then it belongs to a caller. At most half of all
// connections may be pending. When one more comes, the address with the most pending
// connections loses its oldest one. Callers may have three quarters. When one more
// connection becomes a caller's, the caller with the most loses one, preferably one
// without a request. Of several addresses or callers with the most, the one whose
// connection is the oldest loses it.
type connections struct {
	most    int
	writing atomic.Int64 // connections to which something is being written, and those that were given up
	ended   func()       // called after each request, and when a connection is closed

	mu      sync.Mutex // guards what follows
	room    sync.Cond  // a connection or a listener was closed, or there are pending connections
	open    int
	pending holders // by address
	callers holders // by caller
	away    []gift  // connections that were given away
}

// holders is connections by who has them.
type holders struct {
	size    int
	puts    uint64 // how many connections were put so far
	of      map[holder]*share
	largest turns.Heap[*share]
	headers *turns.Shares // of maxHeaders; has a lock of its own
}

func newHolders() holders {
	return holders{of: map[holder]*share{}, headers: turns.NewShares(maxHeaders)}
}

// holder is an address, or a caller with a name.
type holder struct {
	address netip.Addr
	caller  string
}

// share are the connections of one holder.
type share struct {
	turns.Position // in holders.largest

	by    holder
	conns list.List // of *conn, the oldest first
}

func newConnections(most int) *connections {
	c := &connections{most: most, ended: func() {}, pending: newHolders(), callers: newHolders()}
	c.room.L = &c.mu
	return c
}

// add counts a connection, and closes a pending one if there are too many.
func (c *connections) add(one *conn) {
	c.mu.Lock()
	var excess *conn
	if c.pending.size > 0 && (c.pending.size >= max(1, c.most/2) || c.open >= c.most) {
		excess, _ = c.pending.largest.First().conns.Front().Value.(*conn)
		c.dropLocked(excess)
	}
	c.pending.put(one, holder{address: addressOf(one)})
	c.open++
	c.room.Broadcast()
	c.mu.Unlock()
	if excess != nil {
		_ = excess.Close()
	}
}

// know gives a pending connection to a caller, and closes one of a caller's if there are
// too many. Callers without a name are distinguished by their addresses.
func (c *connections) know(one *conn, caller string) {
	by := holder{caller: caller}
	if caller == "" {
		by.address = addressOf(one)
	}
	c.mu.Lock()
	if one.gone {
		c.mu.Unlock()
		return
	}
	var excess *conn
	one.holders.take(one)
	if c.callers.size >= max(1, c.most-c.most/4) {
		excess = c.callers.largest.First().spare()
		c.dropLocked(excess)
	}
	c.callers.put(one, by)
	c.mu.Unlock()
	if excess != nil {
		_ = excess.Close()
	}
}

// remove counts a connection no longer.
func (c *connections) remove(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !one.gone {
		c.dropLocked(one)
	}
}

func (c *connections) dropLocked(one *conn) {
	one.holders.take(one)
	one.gone = true
	c.open--
	c.room.Broadcast()
}

// put adds a connection.
func (c *holders) put(one *conn, by holder) {
	h := c.of[by]
	added := h == nil
	if added {
		h = &share{by: by}
		c.of[by] = h
	}
	c.size++
	c.puts++
	one.holders, one.share, one.element, one.put = c, h, h.conns.PushBack(one), c.puts
	if added {
		c.largest.Push(h)
		return
	}
	c.largest.Fix(h)
}

// take takes a connection out.
func (c *holders) take(one *conn) {
	h := one.share
	h.conns.Remove(one.element)
	one.holders, one.share, one.element = nil, nil, nil
	c.size--
	if h.conns.Len() > 0 {
		c.largest.Fix(h)
		return
	}
	c.largest.Remove(h) // does not compare it with others
	delete(c.of, h.by)
}

// first returns conn.put of the connection that the holder loses first.
func (h *share) first() uint64 {
	one, _ := h.conns.Front().Value.(*conn)
	return one.put
}

// spare returns the oldest connection on which nothing is asked, or another one if a
// few have requests. Those are looked at last the next time.
func (h *share) spare() *conn {
	const few = 64
	for range min(few, h.conns.Len()) {
		oldest := h.conns.Front()
		if one, _ := oldest.Value.(*conn); !one.busy.Load() {
			return one
		}
		h.conns.MoveToBack(oldest)
	}
	one, _ := h.conns.Front().Value.(*conn)
	return one
}

// listener accepts connections that are bounded.
type listener struct {
	net.Listener
	all    *connections
	fresh  *sync.WaitGroup // holds connections on which nothing was asked yet
	closed bool            // guarded by all.mu
}

// Accept waits for room, if all connections are known ones.
func (l *listener) Accept() (net.Conn, error) {
	l.all.mu.Lock()
	for !l.closed && l.all.open >= l.all.most && l.all.pending.size == 0 {
		l.all.room.Wait()
	}
	closed := l.closed
	l.all.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.fresh.Add(1)
	one := &conn{Conn: c, used: sync.OnceFunc(l.fresh.Done), all: l.all}
	if before, ok := c.(*from); ok {
		one.Conn, one.gift, one.received = before.Conn, before.gift, true
	}
	l.all.add(one)
	return one, nil
}

// Close stops accepting, and ends a wait for room.
func (l *listener) Close() error {
	l.all.mu.Lock()
	l.closed = true
	l.all.room.Broadcast()
	l.all.mu.Unlock()
	return l.Listener.Close()
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	used  func() // says that something was asked on it
	known sync.Once
	busy  atomic.Bool // a request on it is being read or answered
	all   *connections

	headers headers // of who serves the connection

	between

	holders *holders // which counts it; guarded by all.mu, as what follows
	share   *share
	element *list.Element
	put     uint64 // its number in holders, in the order in which they were put
	gone    bool   // not counted any more
}

func (c *conn) Close() error {
	c.giveAway()
	c.used()
	c.closed()
	c.all.remove(c)
	c.all.ended()
	return c.Conn.Close()
}

// connKey is the key of the *conn that a request came by.
type connKey struct{}

// Admitted makes the connection of a request that was let through one of its caller.
func Admitted(ctx context.Context, caller string) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.known.Do(func() { c.all.know(c, caller) })
	}
}

// followed keeps which connections have requests.
func followed(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok {
		c.busy.Store(state == http.StateActive)
		if state == http.StateIdle {
			c.all.ended()
			c.ended(c.headers.next > 0)
		}
		if state == http.StateIdle || state == http.StateClosed {
			c.ready()
		}
	}
}

// addressOf is where a connection comes from. The zero Addr stands for unix sockets.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return turns.Network(at.Addr())
}

// Before reports whether a holder has more connections than another one, or as many, of which one is the
// oldest.
func (h *share) Before(other *share) bool {
	if a, b := h.conns.Len(), other.conns.Len(); a != b {
		return a > b
	}
	return h.first() < other.first()
}
