package replicas

import (
	"net"
	"sync"
)

const (
	// maxIdle is how many connections to another replica are kept without a request.
	maxIdle = 64
	// maxKept is how many connections of one replica stay open after an answer. It is more than a replica keeps, which closes
	// the others itself.
	maxKept = 4 * maxIdle
	// maxAsking bounds the connections of one replica. Each takes 40 KB here, and has one request, such as a stream: a replica has
	// more of them than max_sessions by default.
	maxAsking = 16384
)

// asking are the connections to the second port on which replicas have asked something: a certificate may be stolen, and a
// connection is kept for some minutes (SPEC N2).
type asking struct {
	mu  sync.Mutex // guards the fields that follow
	of  map[net.Conn]string
	num map[string]int // by the digest of a certificate; none is 0
}

// add notes that a replica asks something on a connection. ok is false if it has too many, and kept if this one should stay open
// after the answer.
func (a *asking) add(c net.Conn, digest string) (ok, kept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, is := a.of[c]; !is {
		if a.num[digest] >= maxAsking {
			return false, false
		}
		if a.of == nil {
			a.of, a.num = map[net.Conn]string{}, map[string]int{}
		}
		a.of[c] = digest
		a.num[digest]++
	}
	return true, a.num[digest] <= maxKept
}

// remove takes a connection out, if it is there.
func (a *asking) remove(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest, is := a.of[c]
	if !is {
		return
	}
	delete(a.of, c)
	if a.num[digest]--; a.num[digest] == 0 {
		delete(a.num, digest)
	}
}
