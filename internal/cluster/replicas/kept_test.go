package replicas

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
)

// SPEC N2: who has the certificate of a replica cannot leave as many connections open as it likes: those beyond a bound are closed
// after their answer.
func TestN2AReplicaKeepsFewConnectionsWithoutARequest(t *testing.T) {
	on, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, on, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{a.cert}}} //nolint:gosec // a test
	kept := 0
	for range 2 * maxKept {
		one := &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", on.Addr().String())
		}}
		defer one.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+b.self+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := one.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.Status)
		}
		if !resp.Close {
			kept++
		}
	}
	if kept < maxKept || kept > maxKept+maxKept/2 { // one counts a moment after its answer
		t.Errorf("%d connections are kept, want %d", kept, maxKept)
	}
}

// SPEC N2: the connections of one replica are bounded, without a bound for another one, and nothing is kept of those that are over.
// Those that have a request, such as streams, do not count as kept.
func TestN2TheConnectionsOfAReplicaAreBounded(t *testing.T) {
	var all asking
	var conns []net.Conn
	for n := range maxAsking {
		c := &stranger{address: net.TCPAddr{Port: n + 1}}
		conns = append(conns, c)
		if ok, kept := all.add(c, "a"); !ok || !kept {
			t.Fatalf("connection %d: %t, %t", n, ok, kept)
		}
	}
	more := &stranger{}
	if ok, _ := all.add(more, "a"); ok {
		t.Error("there is one more")
	}
	if ok, kept := all.add(more, "b"); !ok || !kept {
		t.Error("another replica has no room")
	}
	for _, c := range conns[:maxKept] {
		all.follow(c, http.StateIdle)
	}
	if ok, kept := all.add(conns[maxKept], "a"); !ok || kept {
		t.Errorf("one that asks beside %d that are kept: %t, %t", maxKept, ok, kept)
	}
	all.follow(conns[0], http.StateActive)
	if ok, kept := all.add(conns[0], "a"); !ok || !kept {
		t.Errorf("one of those that are kept: %t, %t", ok, kept)
	}
	for _, c := range append(conns, more) {
		all.follow(c, http.StateClosed)
		all.follow(c, http.StateClosed)
	}
	if n := len(all.of) + len(all.open) + len(all.idle); n != 0 {
		t.Errorf("%d entries stay", n)
	}
}
