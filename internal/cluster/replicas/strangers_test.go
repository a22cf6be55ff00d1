package replicas

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
)

// stranger is a connection from an address.
type stranger struct {
	net.Conn
	address net.TCPAddr
}

func (c *stranger) RemoteAddr() net.Addr { return &c.address }

// SPEC N2: a stranger that makes connections without end closes its own alone: that of a replica is one of a stranger until it has
// asked something.
func TestN2AStrangerClosesItsOwnConnections(t *testing.T) {
	var s strangers
	replica := &stranger{address: net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}}
	s.add(replica)
	var last net.Conn
	for port := range 3 * maxStrangers {
		last = &stranger{address: net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: port + 1}}
		if s.add(last) == replica {
			t.Fatal("the connection of a replica has to go")
		}
	}
	if len(s.at) != maxStrangers || s.at[last] == nil {
		t.Errorf("%d connections stay", len(s.at))
	}
	for c := range s.at {
		s.remove(c)
	}
	if s.remove(last); len(s.of) != 0 {
		t.Errorf("%d networks stay", len(s.of))
	}
}

// SPEC P4, N2: strangers who hang up before the API server has answered make no more requests than others.
func TestP4StrangersWhoHangUpAreLookedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := newReplica(t, "a")
		r.opts.Client = clientOf(t, whileAsked(func(ctx context.Context) (*http.Response, error) {
			if asked++; ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return new(lister).RoundTrip(nil)
		}))
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		for n := range 100 {
			if r.knows(gone, strconv.Itoa(n)) {
				t.Fatal("a stranger is known")
			}
		}
		if asked != 1 {
			t.Errorf("%d requests, want 1", asked)
		}
	})
}

// whileAsked answers a request for as long as somebody waits for the answer.
type whileAsked func(ctx context.Context) (*http.Response, error)

func (w whileAsked) RoundTrip(q *http.Request) (*http.Response, error) { return w(q.Context()) }
