package outbound

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How much is read from a connection without a pause: some for each request, and as much as the
// readers of its answers take. Anything else is unsolicited: HTTP/2 frames without content, which a
// service can send forever, even without a call in flight, and which would keep a CPU busy (SPEC
// S2).
const (
	unaskedRate = 256 << 10 // bytes per second; about ten thousand pings
	perRequest  = maxHeader + maxUnread + 64<<10
	perRead     = 64 // in addition to twice what was read, for frames with small pieces
	maxAhead    = 16 << 20
	mostFloods  = 4 // how many connections have unaskedRate at one time; more of them share it
)

// floods counts the connections of a Client from which more comes than was asked for, while they pause.
type floods struct{ pausing atomic.Int64 }

// rate returns how many bytes each of them may read in a second.
func (f *floods) rate() int64 { return unaskedRate * mostFloods / max(mostFloods, f.pausing.Load()) }

// paced is a connection that reads unsolicited data slowly.
type paced struct {
	net.Conn
	closed    chan struct{}
	closeOnce sync.Once
	over      func() // called once, when it is closed
	all       *floods

	mu   sync.Mutex // guards the fields that follow
	left int64      // bytes that may be read without a pause; negative if more were read
	at   time.Time  // when left was computed
}

func newPaced(conn net.Conn, over func(), all *floods) *paced {
	return &paced{Conn: conn, closed: make(chan struct{}), over: over, all: all, left: perRequest, at: time.Now()}
}

// pacedOf returns the paced connection of a request; nil if there is none.
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
		p.all.pausing.Add(1)
		select {
		case <-time.After(pause):
		case <-p.closed:
		}
		p.all.pausing.Add(-1)
	}
	return n, err
}

// Close implements net.Conn.
func (p *paced) Close() error {
	p.closeOnce.Do(func() {
		close(p.closed)
		p.over()
	})
	return p.Conn.Close()
}

// came counts bytes that were read, and returns how long to pause.
func (p *paced) came(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left -= int64(n)
	if p.left > 0 { // the usual case does not read the clock
		return 0
	}
	now, rate := time.Now(), p.all.rate()
	p.left += min(int64(now.Sub(p.at).Seconds()*float64(rate)), perRequest)
	p.at = now
	return time.Duration(max(-p.left, 0)) * time.Second / time.Duration(rate)
}

// asked allows n more bytes without a pause.
func (p *paced) asked(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = min(p.left+n, maxAhead)
}
