// Package faultproxy stands between a client and a server and does to their
// connections what networks do: it delays, resets, cuts and stalls them, or
// answers in the server's place. Only tests import it.
//
// It passes bytes and knows no protocol, so that whatever is spoken over TCP can
// be tested with it. A fault belongs to a connection, not to a request: a client
// that reuses connections meets the next fault when it opens the next one, to
// which Break drives it.
package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Fault is what happens to one connection. The zero Fault is none.
type Fault struct {
	// Delay passes before the first byte of an answer is passed on.
	Delay time.Duration
	// Refuse resets the connection as soon as it is accepted.
	Refuse bool
	// Swallow resets the connection when the request has been passed on and the
	// first byte of the answer is there: the server has done its work, and the
	// client does not know.
	Swallow bool
	// Instead is what the client gets as soon as it has said something, in place
	// of what the server would answer, which is not asked. The connection is
	// then closed.
	Instead string
	// After is how many bytes of the server's answers pass before Then happens.
	After int64
	// Then is what happens behind After bytes. If zero, nothing does.
	Then Ending
}

// Ending is how a connection ends in the middle of an answer.
type Ending int

// The ways to end.
const (
	Never Ending = iota
	Cut          // closed in order, as if all had been said
	Reset        // a TCP reset
	Stall        // nothing more comes, and the connection stays open
)

// Proxy passes connections on to one server.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields that follow
	next     []Fault
	rest     Fault
	open     map[*link]bool
	accepted int
	closed   bool
}

// link is one connection and the one that it stands for.
type link struct {
	client *net.TCPConn
	over   chan struct{} // closed by end
	once   sync.Once

	mu     sync.Mutex // guards server
	server *net.TCPConn
}

// New starts a proxy on a loopback port for the server at target (host:port),
// until the test is over.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, open: map[*link]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients reach the proxy, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Next gives the next connections a fault each, in order. Those that come after
// have that of Always.
func (p *Proxy) Next(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = append(p.next, faults...)
}

// Always gives a fault to all connections from now on that Next has none for.
func (p *Proxy) Always(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = f
}

// Connections returns how many connections there have been.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Break resets the connections that are open.
func (p *Proxy) Break() {
	for _, l := range p.links() {
		l.reset()
	}
}

func (p *Proxy) links() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for l := range p.open {
		all = append(all, l)
	}
	return all
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Break()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		l := &link{client: conn.(*net.TCPConn), over: make(chan struct{})}
		if f, ok := p.enter(l); ok {
			p.running.Go(func() {
				defer p.leave(l)
				defer l.end()
				p.serve(l, f)
			})
		} else {
			l.reset()
		}
	}
}

// enter takes a connection in and says what happens to it.
func (p *Proxy) enter(l *link) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Fault{}, false
	}
	p.accepted++
	p.open[l] = true
	if len(p.next) == 0 {
		return p.rest, true
	}
	f := p.next[0]
	p.next = p.next[1:]
	return f, true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

func (p *Proxy) serve(l *link, f Fault) {
	if f.Refuse {
		l.reset()
		return
	}
	if f.Instead != "" {
		answerInstead(l, f.Instead)
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		l.reset()
		return
	}
	server := conn.(*net.TCPConn)
	if !l.join(server) {
		return
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		_, _ = io.Copy(server, l.client) // whichever end is gone, the other learns it
		_ = server.CloseWrite()
	})
	answer(l, server, f)
	l.end()
}

// answerInstead answers the first words of a client.
func answerInstead(l *link, text string) {
	if _, err := l.client.Read(make([]byte, 64<<10)); err != nil {
		return
	}
	_, _ = io.WriteString(l.client, text)
	_ = l.client.CloseWrite()
	// What is unread when a connection is closed would reset it, and the answer be lost.
	_, _ = io.Copy(io.Discard, l.client)
}

// answer passes on what the server says, as the fault has it.
func answer(l *link, server *net.TCPConn, f Fault) {
	buf := make([]byte, 32<<10)
	left := f.After
	for first := true; ; first = false {
		n, err := server.Read(buf)
		if n > 0 && first {
			if f.Swallow {
				l.reset()
				return
			}
			if !l.pause(f.Delay) {
				return
			}
		}
		if f.Then != Never && int64(n) >= left {
			_, _ = l.client.Write(buf[:left])
			l.finish(f.Then)
			return
		}
		left -= int64(n)
		if _, werr := l.client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// join makes server the other end, unless the link has been ended.
func (l *link) join(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
		_ = server.Close()
		return false
	default:
	}
	l.server = server
	return true
}

// pause waits, and reports whether the link is still there.
func (l *link) pause(d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.over:
		return false
	}
}

func (l *link) finish(how Ending) {
	switch how {
	case Reset:
		l.reset()
	case Stall:
		<-l.over
	case Cut, Never:
		l.end()
	}
}

// reset ends both connections, the client's with a TCP reset.
func (l *link) reset() {
	_ = l.client.SetLinger(0)
	l.end()
}

// end closes both connections.
func (l *link) end() {
	l.once.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.over)
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}
