package listen

import (
	"sync/atomic"
	"time"
)

// unread is for how long the client of a connection has not taken what is written to it.
type unread struct {
	since  atomic.Int64 // when the write began that goes on, after start; 0 if none does
	before atomic.Int64 // how long those before took, of the same answer
	over   atomic.Int64 // when it was given up; 0 if it was not
}

// start is what times are measured from.
var start = time.Now()

// Write implements net.Conn. An answer of some KiB is written in one piece.
func (c *conn) Write(p []byte) (int, error) {
	if !c.gathers(p) {
		return c.write(p)
	}
	whole := c.gathered.add(p)
	if whole == nil {
		return len(p), nil
	}
	defer c.gathered.end()
	if _, err := c.write(whole); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *conn) write(p []byte) (int, error) {
	c.all.writing.Add(1)
	began := int64(time.Since(start)) | 1
	c.unread.since.Store(began)
	n, err := c.Conn.Write(p)
	c.unread.since.Store(0)
	c.unread.before.Add(int64(time.Since(start)) - began)
	c.all.writing.Add(-1)
	return n, err
}

// SetWriteDeadline implements net.Conn. With a time that is over, the front gives the connection up: its client does not read, or has
// come back for its answer on another one.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 && c.unread.over.CompareAndSwap(0, int64(time.Since(start))|1) {
		c.all.writing.Add(1)
	}
	return c.Conn.SetWriteDeadline(t)
}

// closed says that nothing is written any more.
func (c *conn) closed() {
	if c.unread.over.Swap(0) != 0 {
		c.all.writing.Add(-1)
	}
}

// waits returns for how long the client has not taken what is being written, or the connection was given up; 0 if it takes all.
func (u *unread) waits() time.Duration {
	if over := u.over.Load(); over != 0 {
		return time.Since(start) - time.Duration(over)
	}
	since := u.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(start) - time.Duration(since-u.before.Load())
}

// unread returns the connections whose client has not taken what is written for longer than that.
func (c *connections) unread(than time.Duration) (all []*conn) {
	if c.writing.Load() == 0 {
		return nil
	}
	for _, one := range c.all() {
		if one.unread.waits() > than {
			all = append(all, one)
		}
	}
	return all
}

// Unread returns how many answers are being written that their clients have not taken for longer than that. Streams do not count.
func (w *Server) Unread(than time.Duration) (n int) {
	for _, one := range w.conns.unread(than) {
		if one.isTaken() {
			n++
		}
	}
	return n
}

func (c *conn) isTaken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == taken
}

// CutUnread closes the connections of these, and of such streams.
func (w *Server) CutUnread(than time.Duration) {
	for _, one := range w.conns.unread(than) {
		_ = one.Close() // its client has had its time
	}
}
