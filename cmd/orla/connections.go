package main

import (
	"container/heap"
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
)

// connections bounds the open connections of all listeners. A connection is a
// stranger's until a request on it was let through (known). Strangers may have half
// of all connections. When one more comes, the address with the most of them loses
// its oldest one. A connection that is known is never closed to make room.
type connections struct {
	most int

	mu        sync.Mutex // guards what follows
	room      sync.Cond  // a connection or a listener was closed, or there are strangers
	open      int
	strangers int
	addresses map[netip.Addr]*address
	largest   byStrangers
}

// address is where strangers have connections from.
type address struct {
	of    netip.Addr
	conns list.List // of *conn, the oldest first
	index int       // in connections.largest
}

func newConnections(most int) *connections {
	c := &connections{most: most, addresses: map[netip.Addr]*address{}}
	c.room.L = &c.mu
	return c
}

// add counts a connection, and closes a stranger's if there are too many.
func (c *connections) add(one *conn) {
	c.mu.Lock()
	var over *conn
	if c.strangers > 0 && (c.strangers >= max(1, c.most/2) || c.open >= c.most) {
		over, _ = c.largest[0].conns.Front().Value.(*conn)
		c.forgetLocked(over)
		c.open--
		over.gone = true
	}
	of := addressOf(one)
	a := c.addresses[of]
	if a == nil {
		a = &address{of: of}
		c.addresses[of] = a
		heap.Push(&c.largest, a)
	}
	one.from, one.place = a, a.conns.PushBack(one)
	heap.Fix(&c.largest, a.index)
	c.open++
	c.strangers++
	c.room.Broadcast()
	c.mu.Unlock()
	if over != nil {
		_ = over.Close()
	}
}

// know makes a stranger's connection one that is known.
func (c *connections) know(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(one)
}

// remove counts a connection no longer.
func (c *connections) remove(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.gone {
		return
	}
	one.gone = true
	c.forgetLocked(one)
	c.open--
	c.room.Broadcast()
}

// forgetLocked takes a connection from the strangers', if it is one of them.
func (c *connections) forgetLocked(one *conn) {
	a := one.from
	if a == nil {
		return
	}
	a.conns.Remove(one.place)
	one.from, one.place = nil, nil
	c.strangers--
	if a.conns.Len() > 0 {
		heap.Fix(&c.largest, a.index)
		return
	}
	heap.Remove(&c.largest, a.index)
	delete(c.addresses, a.of)
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
	for !l.closed && l.all.open >= l.all.most && l.all.strangers == 0 {
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
	one.known = sync.OnceFunc(func() { l.all.know(one) })
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
	known func() // says that a request on it was let through
	all   *connections

	from  *address // nil when it is known; guarded by all.mu, as what follows
	place *list.Element
	gone  bool // not counted any more
}

func (c *conn) Close() error {
	c.used()
	c.all.remove(c)
	return c.Conn.Close()
}

// connKey is the key of the *conn that a request came by.
type connKey struct{}

// admitted makes the connection of a request that was let through a known one.
func admitted(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.known()
	}
}

// addressOf is where a connection comes from. One who has an IPv6 address has all
// of its network. The zero Addr stands for unix sockets.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		const network = 64 // bits
		addr = netip.PrefixFrom(addr.WithZone(""), network).Masked().Addr()
	}
	return addr
}

// byStrangers is a heap of addresses, that with the most connections first.
type byStrangers []*address

func (h byStrangers) Len() int           { return len(h) }
func (h byStrangers) Less(i, j int) bool { return h[i].conns.Len() > h[j].conns.Len() }
func (h byStrangers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is of heap.Interface.
func (h *byStrangers) Push(x any) {
	a, _ := x.(*address)
	a.index = len(*h)
	*h = append(*h, a)
}

// Pop is of heap.Interface.
func (h *byStrangers) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}
