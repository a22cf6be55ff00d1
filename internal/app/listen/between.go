package listen

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// phase is how far the request of a connection is.
type phase int

const (
	idle      phase = iota // no byte of it was read
	arriving               // its headers are being read
	called                 // they were read
	taken                  // a front has taken it
	streaming              // as well, and the answer is a stream
	answered               // its handler has returned; what is left of the answer is being written
)

// patience is how often a held connection is looked at for as long as there is reason to wait for it (SPEC S2). The
// looks count since it was held, in all phases. An idle one needs nothing of its client. At a look every 2 ms, those
// for the headers take 500 ms.
var patience = [...]int{idle: 5000, arriving: 250, called: 1000, taken: 0, streaming: 0, answered: 1250}

// lastPatience is patience with a connection whose answer or stream ends because Orla does.
const lastPatience = 250

// gift is a connection that one program gives to the next.
type gift struct {
	fd     int
	served bool   // a request was answered on it
	ahead  []byte // the first byte of the next request, if it was read
}

// between is what is known of a connection between two requests.
type between struct {
	mu       sync.Mutex // guards the fields that follow
	phase    phase
	holds    bool     // no further request is to begin
	looks    int      // since holds was set
	reading  bool     // Conn.Read is being called
	peeked   bool     // net/http has ahead: it reads a byte to see whether the client is there
	received bool     // another program has accepted it, and no request was read since
	held     bool     // no request is to begin; Close gives the connection away
	unread   unread   // has no lock
	gathered gathered // of who writes
	gift
}

// enters notes how far a request is. What comes later does not go back.
func (c *conn) enters(next phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = max(c.phase, next)
}

// look counts a look at a held connection, and reports whether to wait for it: since it asks for something, is about to
// be given away or has an answer to write, or since its request is being answered.
func (c *conn) look() (asks, answers bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case taken:
		return false, true
	case streaming:
		return false, false
	default:
		c.looks++
		return c.looks <= patience[c.phase], false
	}
}

// lastLook is look when nothing is answered any more.
func (c *conn) lastLook() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	if c.phase == idle {
		return c.looks <= patience[idle]
	}
	return c.looks <= lastPatience
}

// free lets further requests begin. It reports true if it is too late: the connection is about to be given away.
func (c *conn) free() (late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late = c.holds && c.phase == idle
	c.holds = late
	return late
}

// errHeld ends the wait for a request. net/http closes the connection then, without an answer.
var errHeld = os.ErrDeadlineExceeded

// hold waits for no further request. It wakes who waits for one.
func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds, c.looks = true, 0
	if c.phase == idle {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// SetReadDeadline implements net.Conn. To net/http a connection of the program before is a new one, which has to ask for
// something soon. If it has done so before, it may wait as long as there: a client sees no reason to expect less.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received && c.served && time.Until(t) > 0 {
		t = time.Now().Add(idleTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// readNext reads from the connection, unless a request would begin while it is held.
func (c *conn) readNext(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.phase == idle && c.holds:
		c.held = true
		return 0, errHeld
	case c.phase == idle && len(c.ahead) > 0:
		n, c.ahead = copy(p, c.ahead), nil
		c.beginLocked()
		return n, nil
	}
	c.reading = true
	c.mu.Unlock()
	n, err = c.Conn.Read(p)
	c.mu.Lock()
	c.reading = false
	switch {
	case c.phase >= called && n > 0 && len(p) == 1:
		c.peeked, c.ahead = true, []byte{p[0]}
	case c.phase != idle:
	case n > 0:
		c.beginLocked()
	case c.holds && os.IsTimeout(err):
		c.held = true
	}
	return n, err
}

// beginLocked notes the first byte of a request.
func (c *conn) beginLocked() {
	if c.phase = arriving; c.holds || c.received { // hold, or SetReadDeadline, has set another deadline
		_ = c.Conn.SetReadDeadline(time.Now().Add(headerTimeout))
	}
	c.received = false
}

// ended notes that a request has been answered. more says that something of the next one may have been read, beside
// ahead. Then it has begun. If there is only ahead, it begins in the next program if the connection is held.
func (c *conn) ended(more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.served = idle, true
	c.unread.before.Store(0)
	if more || c.peeked && !c.holds {
		c.phase, c.ahead = arriving, nil
	}
	c.peeked = false
}

// giveAway keeps a duplicate of a connection that is held, if no request has begun on it: the reason that it is closed
// may be another one.
func (c *conn) giveAway() {
	c.mu.Lock()
	held, g := c.held || c.holds && c.phase == idle && !c.reading, c.gift
	c.mu.Unlock()
	if open, ok := c.Conn.(syscall.Conn); ok && held {
		c.all.keep(open, g)
	}
}
