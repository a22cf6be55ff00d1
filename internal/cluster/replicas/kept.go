package replicas

import (
	"net"
	"net/http"
	"sync"
)

const (
	// maxIdle is how many connections to another replica are kept without a request.
	maxIdle = 64
	// maxKept is how many connections of one replica stay open without a request. It is more than a replica keeps, which closes
	// the others itself.
	maxKept = 4 * maxIdle
	// maxAsking bounds the connections of one replica. Each takes 40 KB here, and has one request, such as a stream: a replica has
	// more of them than max_sessions by default.
	maxAsking = 16384
)

// asking are the connections to the second port on which replicas have asked something: a certificate may be stolen, and a
// connection is kept for some minutes (SPEC N2).
type asking struct {
	mu   sync.Mutex // guards the fields that follow
	of   map[net.Conn]*askingConn
	open map[string]int // connections, by the digest of a certificate; none is 0
	idle map[string]int // those of them without a request; none is 0
}

// askingConn is one of the connections.
type askingConn struct {
	digest string // of its certificate
	idle   bool
}

// add notes that a replica asks something on a connection. ok is false if it has too many, and kept if this one should stay open
// after the answer.
func (a *asking) add(c net.Conn, digest string) (ok, kept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[c] == nil {
		if a.open[digest] >= maxAsking {
			return false, false
		}
		if a.of == nil {
			a.of, a.open, a.idle = map[net.Conn]*askingConn{}, map[string]int{}, map[string]int{}
		}
		a.of[c] = &askingConn{digest: digest}
		a.open[digest]++
	}
	return true, a.idle[digest] < maxKept
}

// follow notes the state of a connection.
func (a *asking) follow(c net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.of[c]
	if of == nil {
		return
	}
	if idle := state == http.StateIdle; idle != of.idle {
		of.idle = idle
		count(a.idle, of.digest, idle)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		delete(a.of, c)
		count(a.open, of.digest, false)
	}
}

// count counts one more or one less.
func count(in map[string]int, digest string, more bool) {
	if more {
		in[digest]++
	} else if in[digest]--; in[digest] == 0 {
		delete(in, digest)
	}
}
