package replicas

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// begun counts the connections that are made at a time: from when they are accepted until their first answer.
type begun struct {
	net.Listener

	mu            sync.Mutex // guards the fields that follow
	all, now, max int
	enough        chan struct{} // closed when so many have come that nobody has to wait for more
}

func (b *begun) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all++
	b.now++
	b.max = max(b.max, b.now)
	if b.all == maxDials {
		close(b.enough)
	}
	return &beginning{Conn: c, of: b}, nil
}

// beginning is one of these connections.
type beginning struct {
	net.Conn
	of    *begun
	first sync.Once
}

func (c *beginning) Write(p []byte) (int, error) {
	c.first.Do(func() {
		<-c.of.enough
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.now--
	})
	return c.Conn.Write(p)
}

// pair returns a replica and another one that it knows, whose second port is served on a listener.
func pair(t *testing.T, on net.Listener, passed http.Handler) (a, b *Replicas) {
	t.Helper()
	a, b = newReplica(t, "a"), newReplica(t, "b")
	end := b.Listen(on, passed)
	t.Cleanup(func() { end(context.Background()) })
	for r, to := range map[*Replicas]*Replicas{a: b, b: a} {
		l := there(r.self, time.Now())
		l.Metadata.Annotations[noteAddress], l.Metadata.Annotations[noteDigest] = on.Addr().String(), r.digest
		meet(time.Now(), to, l)
	}
	return a, b
}

// SPEC P4, N2: a client with many sessions does not make its replica look like many strangers to the one that has them, which would
// close its connections and be taken for a replica that is out of reach.
func TestP4ManyRequestsAtOnceReachAReplica(t *testing.T) {
	on, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const n = 6 * maxDials
	counted := &begun{Listener: on, enough: make(chan struct{})}
	var come sync.WaitGroup // so that no connection is used twice
	come.Add(n)
	a, b := pair(t, counted, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		come.Done()
		come.Wait()
	}))
	var asking sync.WaitGroup
	for range n {
		asking.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+b.self+"/x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := a.transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				come.Done()
				return
			}
			_ = resp.Body.Close()
		})
	}
	asking.Wait()
	counted.mu.Lock()
	defer counted.mu.Unlock()
	if counted.all != n || counted.max > maxDials {
		t.Errorf("%d connections, %d of them at a time; want %d, and at most %d", counted.all, counted.max, n, maxDials)
	}
	if !a.Reaches(b.self) {
		t.Error("the replica counts as out of reach")
	}
}

// SPEC P4: requests that wait for their turn to connect to a replica which is found to be out of reach do not try one after the other.
func TestP4NobodyWaitsToConnectToWhoIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a")
		meet(time.Now(), r, there("b", time.Now()))
		var give []func()
		for range maxDials {
			one, ok := r.turnToDial(t.Context(), "b")
			if !ok {
				t.Fatal("there is room")
			}
			give = append(give, one)
		}
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		if _, ok := r.turnToDial(gone, "b"); ok {
			t.Error("one more than may connect at a time")
		}
		later := there("b", time.Now())
		later.Metadata.Version = "2"
		r.note(false, *later) // its Lease is renewed meanwhile
		waited := make(chan bool, 1)
		go func() {
			_, ok := r.turnToDial(t.Context(), "b")
			waited <- ok
		}()
		synctest.Wait()
		r.suspect("b")
		give[0]()
		if <-waited {
			t.Fatal("it is tried again, though it was out of reach just now")
		}
		if one, ok := r.turnToDial(t.Context(), "b"); !ok {
			t.Error("who need not wait may try")
		} else {
			one()
		}
	})
}

// SPEC N2: who has hung up does not stand in the row of those that wait to connect to a replica.
func TestN2WhoHasHungUpDoesNotWaitToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a")
		meet(time.Now(), r, there("b", time.Now()))
		var give func()
		for range maxDials {
			give, _ = r.turnToDial(t.Context(), "b")
		}
		ctx, hangUp := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range maxDials {
			asking.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://b/x", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := r.transport.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
					t.Error("it is answered")
				}
			})
		}
		synctest.Wait()
		hangUp()
		asking.Wait()
		synctest.Wait()
		give()
		if n := len(r.leases[leaseOf("b")].dials); n != maxDials-1 {
			t.Errorf("%d connect, want %d", n, maxDials-1)
		}
	})
}

// SPEC N2: no replica speaks HTTP/2, and so the second port does not.
func TestN2TheSecondPortHasNoHTTP2(t *testing.T) {
	on, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := pair(t, on, http.NotFoundHandler())
	to := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{a.cert}, NextProtos: []string{"h2", "http/1.1"}}} //nolint:gosec // a test
	c, err := to.DialContext(t.Context(), "tcp", on.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	made, ok := c.(*tls.Conn)
	if !ok || made.ConnectionState().NegotiatedProtocol != "http/1.1" {
		t.Errorf("%+v", made.ConnectionState().NegotiatedProtocol)
	}
	to.Config.NextProtos = []string{"h2"}
	if only, err := to.DialContext(t.Context(), "tcp", on.Addr().String()); err == nil {
		_ = only.SetDeadline(time.Now().Add(headTime))
		if _, err := only.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
			t.Error("HTTP/2 is spoken")
		}
		_ = only.Close()
	}
}
