package outbound

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// What is read of a connection without a pause: a part for each request, and what
// its answer's reader takes. What else comes nobody has asked for: frames of HTTP/2
// without content, which a service can send for ever, also when no call is left, and
// would keep a processor busy (SPEC S2).
const (
	unaskedRate = 256 << 10 // bytes in a second; ten thousand pings
	perRequest  = maxHeader + maxUnread + 64<<10
	perRead     = 64 // and twice what was read, for frames around small pieces
	maxAhead    = 16 << 20
)

// paced is a connection that reads what nobody has asked for slowly.
type paced struct {
	net.Conn
	closed    chan struct{}
	closeOnce sync.Once

	mu   sync.Mutex // guards all below
	left int64      // bytes that may come; below zero if there were too many
	at   time.Time  // when left was that
}

func newPaced(conn net.Conn) *paced {
	return &paced{Conn: conn, closed: make(chan struct{}), left: perRequest, at: time.Now()}
}

// pacedOf is the connection below that of a request, nil where there is none.
func pacedOf(conn net.Conn) *paced {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	p, _ := conn.(*paced)
	return p
}

// Read implements net.Conn.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if pause := p.came(n); pause > 0 {
		select {
		case <-time.After(pause):
		case <-p.closed:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (p *paced) Close() error {
	p.closeOnce.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

// came counts what was read, and returns how long that should have taken.
func (p *paced) came(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left -= int64(n)
	if p.left > 0 { // as a rule; no clock is read
		return 0
	}
	now := time.Now()
	p.left += min(int64(now.Sub(p.at).Seconds()*unaskedRate), perRequest)
	p.at = now
	return time.Duration(max(-p.left, 0)) * time.Second / unaskedRate
}

// asked lets n bytes more come at once.
func (p *paced) asked(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = min(p.left+n, maxAhead)
}
