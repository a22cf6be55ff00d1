package listen

import (
	"context"
	"errors"
	"net"
	"os"
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
	Served  []int  `json:"served,omitempty"`  // those of Conns on which requests were answered
	// Ahead are connections of which the first byte of the next request was read.
	Ahead map[int][]byte `json:"ahead,omitempty"`
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
	for looks := 0; w.conns.resume() > 0 && looks < patience[idle] && pace.Sleep(ctx, endPause); looks++ {
	}
	w.mu.Lock()
	s := w.left
	s.add(w.conns.takeGiven())
	w.stopping, w.left, w.current, w.beside, w.given = false, nil, nil, nil, nil
	w.mu.Unlock()
	given, err := s.Sockets()
	return errors.Join(err, w.Take(s, given))
}

// endPause is the time between two looks at connections that end.
const endPause = 2 * time.Millisecond

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

// Looks returns how many held connections have to be waited for: asks are those that are about to be given away, those
// whose request no front has taken yet, and those whose answer is not written yet; answers are those whose request is
// being answered, without streams. Each call counts as one look at each of them, and there is a limit for what a client
// can draw out (SPEC S2). A time would pass as well while this process gets no processor.
func (w *Server) Looks() (asks, answers int) {
	for _, c := range w.conns.all() {
		ask, answer := c.look()
		if ask {
			asks++
		}
		if answer {
			answers++
		}
	}
	return asks, answers
}

// Cut closes the connections that there still are.
func (w *Server) Cut() { _ = w.server.Close() }

// End waits for the connections that there still are, cuts those that a client draws out, and returns what the program
// that follows takes. No request is answered any more, and all streams end.
func (w *Server) End(ctx context.Context) *State {
	w.conns.pause() // counts looks from here
	for w.conns.lastLooks() > 0 && pace.Sleep(ctx, endPause) {
	}
	w.Cut()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.add(w.conns.takeGiven())
	return w.left
}

// add adds connections that were given away.
func (s *State) add(given []gift) {
	for _, g := range given {
		switch {
		case len(g.ahead) > 0:
			if s.Ahead == nil {
				s.Ahead = map[int][]byte{}
			}
			s.Ahead[g.fd] = g.ahead
		case g.served:
			s.Served = append(s.Served, g.fd)
			s.Conns = append(s.Conns, g.fd)
		default:
			s.Conns = append(s.Conns, g.fd)
		}
	}
}

// Len returns how many connections there are.
func (s *State) Len() int { return len(s.Conns) + len(s.Ahead) }

// gifts returns the connections as they were given away.
func (s *State) gifts() (given []gift) {
	served := make(map[int]bool, len(s.Served))
	for _, fd := range s.Served {
		served[fd] = true
	}
	for _, fd := range s.Conns {
		given = append(given, gift{fd: fd, served: served[fd]})
	}
	for fd, ahead := range s.Ahead {
		given = append(given, gift{fd: fd, served: true, ahead: ahead})
	}
	return given
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
	for _, g := range s.gifts() {
		c, err := carry.Conn(g.fd)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		before.conns = append(before.conns, &from{Conn: c, gift: g})
	}
	if len(before.conns) > 0 {
		w.serve(before)
	}
	return problems
}

// from is a connection of the program before, or of before a pause.
type from struct {
	net.Conn
	gift
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

// keep gives a connection away.
func (c *connections) keep(open syscall.Conn, g gift) {
	fd, err := carry.Dup(open)
	if err != nil {
		return // its client sees that it is closed
	}
	g.fd = fd
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = append(c.away, g)
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

// lastLooks looks at all connections, and returns for how many there is patience left.
func (c *connections) lastLooks() (left int) {
	for _, one := range c.all() {
		if one.lastLook() {
			left++
		}
	}
	return left
}

// takeGiven returns the connections that were given away since the last time.
func (c *connections) takeGiven() []gift {
	c.mu.Lock()
	defer c.mu.Unlock()
	away := c.away
	c.away = nil
	return away
}
