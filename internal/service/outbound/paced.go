package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
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
	mostFloods  = 4 // how many connections have unaskedRate at one time; more of them share it, by their tenants first
)

// floods counts the connections of a Client from which more comes than was asked for, while they pause, by their tenants: those
// of one share what it has, however many they are.
type floods struct {
	mu sync.Mutex // guards of
	of map[turns.Owner]int64
}

// pause notes that a connection of a tenant pauses, until it is called again with -1.
func (f *floods) pause(of turns.Owner, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[turns.Owner]int64{}
	}
	if f.of[of] += n; f.of[of] == 0 {
		delete(f.of, of)
	}
}

// rate returns how many bytes a connection of a tenant, which does not pause now, may read in a second.
func (f *floods) rate(of turns.Owner) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	tenants, conns := int64(len(f.of)), f.of[of]+1
	if conns == 1 {
		tenants++
	}
	return unaskedRate * mostFloods / max(mostFloods, tenants*conns)
}

// When a call has ended, its service has to take what waits to be sent to it: some of it in each blocks, and what one Write sends
// within blocksMost. A Write waits for long also if a large body is sent to a slow service: the kernel goes on with it only when a third
// of a buffer is free, which may have megabytes.
const (
	blocks     = 2 * time.Second
	blocksMost = 10 * time.Second
	takesLeast = 32 << 10 // bytes in each blocks
)

// paced is a connection that reads unsolicited data slowly.
type paced struct {
	net.Conn
	made      time.Time
	writing   atomic.Int64 // how long after made the Write that is under way began; 0 if there is none
	closed    chan struct{}
	closeOnce sync.Once
	over      func()      // called once, when it is closed
	of        turns.Owner // the tenant whose requests it is for
	all       *floods

	mu   sync.Mutex // guards the fields that follow
	left int64      // bytes that may be read without a pause; negative if more were read
	at   time.Time  // when left was computed
}

func newPaced(conn net.Conn, of turns.Owner, over func(), all *floods) *paced {
	now := time.Now()
	return &paced{Conn: conn, made: now, closed: make(chan struct{}), over: over, of: of, all: all, left: perRequest, at: now}
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
		p.all.pause(p.of, 1)
		select {
		case <-time.After(pause):
		case <-p.closed:
		}
		p.all.pause(p.of, -1)
	}
	return n, err
}

// Write implements net.Conn. The next one begins when it has returned.
func (p *paced) Write(b []byte) (int, error) {
	p.writing.Store(max(1, int64(time.Since(p.made))))
	defer p.writing.Store(0)
	return p.Conn.Write(b)
}

// closeBlocked closes the connection if a Write waits a while later, and the service takes hardly anything. It is for HTTP/2: such a
// service would keep the calls that have ended, which wait to say so, whatever their contexts are. A service that is merely slow keeps
// the connection, for the sake of the other calls on it.
func (p *paced) closeBlocked() {
	if p != nil {
		p.closeUnlessTaken(taken(p.Conn))
	}
}

// closeUnlessTaken is closeBlocked. before is what the service has taken so far.
func (p *paced) closeUnlessTaken(before uint64) {
	time.AfterFunc(blocks, func() {
		began := p.writing.Load()
		waits := time.Since(p.made) - time.Duration(began)
		if began == 0 || waits < blocks/2 {
			return
		}
		if now := taken(p.Conn); now-before >= takesLeast && waits < blocksMost {
			p.closeUnlessTaken(now)
			return
		}
		p.cut()
	})
}

// cut closes the connection, whatever was not sent.
func (p *paced) cut() {
	if tcp, ok := p.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else the kernel keeps what was not sent, for as long as the service likes
	}
	_ = p.Close() // nothing waits for its error
}

// watch calls closeBlocked when ctx ends, unless stop is called before. When Orla stops, calls have had their time (SPEC H4): a connection
// whose Write waits is closed at once.
func (p *paced) watch(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if p.writing.Load() != 0 && fault.CodeOf(context.Cause(ctx)) == fault.NotReady {
			p.cut()
			return
		}
		p.closeBlocked()
	})
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
	now, rate := time.Now(), p.all.rate(p.of)
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
