package listen

import (
	"sync/atomic"
	"time"
)

// unread is for how long the client of a connection has not taken what is written to it.
type unread struct {
	since  atomic.Int64 // when the write began that goes on, after start; 0 if none does
	before atomic.Int64 // how long those before took, of the same answer
}

// start is what times are measured from.
var start = time.Now()

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.all.writing.Add(1)
	began := int64(time.Since(start)) | 1
	c.unread.since.Store(began)
	n, err := c.Conn.Write(p)
	c.unread.since.Store(0)
	c.unread.before.Add(int64(time.Since(start)) - began)
	c.all.writing.Add(-1)
	return n, err
}

// waits returns for how long the client has not taken what is being written; 0 if nothing is.
func (u *unread) waits() time.Duration {
	since := u.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(start) - time.Duration(since-u.before.Load())
}

// unread returns the connections whose client has not taken an answer for longer than that. Streams do not count.
func (c *connections) unread(than time.Duration) (all []*conn) {
	if c.writing.Load() == 0 {
		return nil
	}
	for _, one := range c.all() {
		if one.unread.waits() > than && one.isTaken() {
			all = append(all, one)
		}
	}
	return all
}

func (c *conn) isTaken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == taken
}

// Unread returns how many answers are being written that their clients have not taken for longer than that.
func (w *Server) Unread(than time.Duration) int { return len(w.conns.unread(than)) }

// CutUnread closes the connections of these.
func (w *Server) CutUnread(than time.Duration) {
	for _, one := range w.conns.unread(than) {
		_ = one.Close() // its client has had its time
	}
}
