package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch/carry"
)

// State is what a Server gives to the one of the program that follows (docs/decisions/0051). Sockets are descriptors.
type State struct {
	Address string `json:"address"`           // as configured
	Current int    `json:"current,omitempty"` // the socket that listens there; 0 for none
	Beside  int    `json:"beside,omitempty"`  // the socket that listens on [::1] beside it; 0 for none
	Given   []int  `json:"given,omitempty"`   // the sockets that systemd gave
	Instead string `json:"instead,omitempty"` // the address that these stand for
	Conns   []int  `json:"conns,omitempty"`   // connections on which no request has begun
}

// Pause accepts no more connections, and begins no more requests on those that there are: both wait in the kernel.
// Requests that have begun go on. Hold must follow, and then Give or Resume.
func (w *Server) Pause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &State{Address: w.address, Instead: w.instead}
	for _, l := range w.listenersLocked() {
		fd, err := dupListener(l)
		if err != nil {
			return err
		}
		switch l {
		case w.current:
			s.Current = fd
		case w.beside:
			s.Beside = fd
		default:
			s.Given = append(s.Given, fd)
		}
	}
	w.stopping, w.left = true, s
	for _, l := range w.listenersLocked() {
		_ = l.Close() // it only stops accepting: the duplicate listens
	}
	return nil
}

// Hold keeps what was accepted before Pause from beginning another request.
func (w *Server) Hold() {
	w.serving.Wait() // all that is accepted is counted then
	w.conns.pause()
}

// Resume takes back what Pause and Hold have done: connections are accepted again, and requests begin on those that there
// are. The error says what is lost.
func (w *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heldHeaders)
	defer cancel()
	for w.conns.resume() > 0 && pace.Sleep(ctx, time.Millisecond) {
	}
	w.mu.Lock()
	s := w.left
	s.Conns = w.conns.takeGiven()
	w.stopping, w.left, w.current, w.beside, w.given = false, nil, nil, nil, nil
	w.mu.Unlock()
	given, err := s.Sockets()
	return errors.Join(err, w.Take(s, given))
}

func dupListener(l net.Listener) (int, error) {
	if wrapped, ok := l.(*listener); ok {
		l = wrapped.Listener
	}
	open, ok := l.(syscall.Conn)
	if !ok {
		return 0, os.ErrInvalid
	}
	return carry.Dup(open)
}

const (
	// heldHeaders and heldBody are how long a held connection may take for the rest of the headers of a request, and until
	// a front has taken the request. A client that takes longer is not waited for (SPEC S2).
	heldHeaders = 500 * time.Millisecond
	heldBody    = 2 * time.Second
)

// Asking returns how many connections there are that are about to be given away, or whose request no front has taken yet.
func (w *Server) Asking() (n int) {
	for _, c := range w.conns.all() {
		if c.asks() {
			n++
		}
	}
	return n
}

func (c *conn) asks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch held := time.Since(c.heldSince); {
	case !c.begun:
		return true
	case c.taken:
		return false
	case c.called:
		return held < heldBody
	default:
		return held < heldHeaders
	}
}

// Cut closes the connections that there still are.
func (w *Server) Cut() { _ = w.server.Close() }

// Open returns how many connections there are that are not given away yet.
func (w *Server) Open() int { return len(w.conns.all()) }

// Give returns what the program that follows takes. Cut must have returned.
func (w *Server) Give() *State {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.Conns = w.conns.takeGiven()
	return w.left
}

// Sockets returns the sockets of State.Given.
func (s *State) Sockets() (given []net.Listener, err error) {
	for _, fd := range s.Given {
		l, problem := carry.Listener(fd)
		if problem != nil {
			err = errors.Join(err, problem)
			continue
		}
		given = append(given, l)
	}
	return given, err
}

// Take serves what was given, as a rule by the program before, with the sockets of State.Sockets. Listen follows, for the case that
// the address has changed. The error says what is left out.
func (w *Server) Take(s *State, given []net.Listener) (problems error) {
	if len(given) > 0 {
		w.Accept(s.Instead, given)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.address = s.Address
	for fd, at := range map[int]*net.Listener{s.Current: &w.current, s.Beside: &w.beside} {
		if fd == 0 {
			continue
		}
		l, err := carry.Listener(fd)
		if err == nil {
			*at = w.serve(l)
		}
		problems = errors.Join(problems, err)
	}
	before := &accepted{}
	for _, fd := range s.Conns {
		c, err := carry.Conn(fd)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		before.conns = append(before.conns, c)
	}
	if len(before.conns) > 0 {
		w.serve(before)
	}
	return problems
}

// accepted is a listener whose connections were accepted before.
type accepted struct{ conns []net.Conn }

// Accept implements net.Listener.
func (a *accepted) Accept() (net.Conn, error) {
	if len(a.conns) == 0 {
		return nil, net.ErrClosed
	}
	c := a.conns[0]
	a.conns = a.conns[1:]
	return c, nil
}

// Close implements net.Listener.
func (*accepted) Close() error { return nil }

// Addr implements net.Listener.
func (*accepted) Addr() net.Addr { return &net.TCPAddr{} }

// between is what is known of a connection between two requests.
type between struct {
	mu        sync.Mutex // guards the fields that follow
	holds     bool       // no further request is to begin
	heldSince time.Time  // when holds was set
	peeked    bool       // net/http has read a byte to see whether the client is there
	begun     bool       // a byte of a request was read, and the request has not ended
	called    bool       // its headers were read
	taken     bool       // its front has taken it
	held      bool       // no request is to begin; Close gives the connection away
}

// free lets further requests begin. It reports true if it is too late: the connection is about to be given away.
func (c *conn) free() (late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late = c.holds && !c.begun
	c.holds = late
	return late
}

// errHeld ends the wait for a request. net/http closes the connection then, without an answer.
var errHeld = os.ErrDeadlineExceeded

// hold waits for no further request. It wakes who waits for one.
func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds, c.heldSince = true, time.Now()
	if !c.begun {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// readNext reads from the connection, unless a request would begin while it is held.
func (c *conn) readNext(p []byte) (int, error) {
	c.mu.Lock()
	if c.holds && !c.begun {
		c.held = true
		c.mu.Unlock()
		return 0, errHeld
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.begun:
		c.peeked = c.peeked || n > 0 && len(p) == 1
	case n > 0:
		c.begun = true
		if c.holds { // hold has set the deadline
			_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
		}
	case c.holds && os.IsTimeout(err):
		c.held = true
	}
	return n, err
}

// ended notes that a request has been answered. ahead says that something of the next one may have been read.
func (c *conn) ended(ahead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun, c.called, c.taken, c.peeked = ahead || c.peeked, false, false, false
}

// giveAway keeps a duplicate of a connection that is held.
func (c *conn) giveAway() {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if open, ok := c.Conn.(syscall.Conn); ok && held {
		c.all.keep(open)
	}
}

// keep gives a connection away.
func (c *connections) keep(open syscall.Conn) {
	fd, err := carry.Dup(open)
	if err != nil {
		return // its client sees that it is closed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = append(c.away, fd)
}

// all returns the connections.
func (c *connections) all() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allLocked()
}

func (c *connections) allLocked() (all []*conn) {
	for _, h := range []*holders{&c.pending, &c.callers} {
		for _, s := range h.of {
			for at := s.conns.Front(); at != nil; at = at.Next() {
				one, _ := at.Value.(*conn)
				all = append(all, one)
			}
		}
	}
	return all
}

// pause holds all connections.
func (c *connections) pause() {
	for _, one := range c.all() {
		one.hold()
	}
}

// resume lets requests begin again, and returns how many connections are still about to be given away.
func (c *connections) resume() (late int) {
	for _, one := range c.all() {
		if one.free() {
			late++
		}
	}
	return late
}

// takeGiven returns the descriptors of the connections that were given away since the last time.
func (c *connections) takeGiven() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	away := c.away
	c.away = nil
	return away
}
