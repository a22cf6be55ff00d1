package outbound

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
)

// pretended takes some addresses of this machine for more public ones.
func pretended(addr netip.Addr) (string, Private) {
	switch addr.String() {
	case "127.0.0.2":
		return "public", PrivateNone
	case "127.0.0.3":
		return "private", PrivateAll
	}
	return classify(addr)
}

// SPEC-TOOLS 5.4: a redirect leads to no address that is less public than the
// first one, also where a connection to it is open, and over another redirect.
func TestT54ARedirectLeadsToNoLessPublicAddress(t *testing.T) {
	const public, private, loopback = "127.0.0.2", "127.0.0.3", "127.0.0.1"
	var arrived atomic.Int64
	at := map[string]string{}
	for _, host := range []string{public, private, loopback} {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Skipf("no address %s: %v", host, err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, to, leads := strings.Cut(r.URL.RawQuery, "to=")
			if !leads {
				arrived.Add(1)
				_, _ = io.WriteString(w, "arrived")
				return
			}
			hosts := strings.Split(to, ",")
			next := at[hosts[0]]
			if len(hosts) > 1 {
				next += "/?to=" + strings.Join(hosts[1:], ",")
			}
			http.Redirect(w, r, next, http.StatusFound)
		})}}
		s.Start()
		t.Cleanup(s.Close)
		at[host] = s.URL
	}
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{public, public, false},
		{public, private, true},
		{public, loopback, true},
		{private, public, false},
		{private, private, false},
		{private, loopback, true},
		{loopback, public, false},
		{loopback, private, false},
		{loopback, loopback, false},
		{loopback, public + "," + loopback, false}, // the first one counts
		{private, public + "," + private, false},
		{public, public + "," + loopback, true},
		{private, public + "," + loopback, true},
	} {
		client := New(Options{Private: PrivateAll})
		t.Cleanup(client.Close)
		client.is = pretended
		client.pool.Store(client.newPool(client.private))
		get := func(url string) error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			_, err = io.ReadAll(resp.Body)
			return err
		}
		for _, url := range at { // so that connections are there
			if err := get(url); err != nil {
				t.Fatal(err)
			}
		}
		arrived.Store(0)
		err := get(fmt.Sprintf("%s/?to=%s", at[c.from], c.to))
		f := fault.From(err)
		switch {
		case !c.refused && (err != nil || arrived.Load() != 1):
			t.Errorf("from %s to %s: %v", c.from, c.to, err)
		case c.refused && (arrived.Load() != 0 || f == nil || f.Code != fault.RuntimePolicyInvalid || !strings.Contains(f.Reason, "leads to it")):
			t.Errorf("from %s to %s: %d arrived, %v", c.from, c.to, arrived.Load(), err)
		}
	}
}

// SPEC S2: a service that redirects to ever other hosts does not leave a connection to each
// of them open. One that stays on its own host keeps the one that it has.
func TestS2RedirectsElsewhereLeaveNoConnections(t *testing.T) {
	for name, begin := range map[string]func(*httptest.Server){
		"HTTP/1": (*httptest.Server).Start,
		"HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			var open atomic.Int64
			roots := x509.NewCertPool()
			serve := func(h http.HandlerFunc) *httptest.Server {
				s := httptest.NewUnstartedServer(h)
				s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
					switch state {
					case http.StateNew:
						open.Add(1)
					case http.StateClosed, http.StateHijacked:
						open.Add(-1)
					case http.StateActive, http.StateIdle:
					}
				}
				begin(s)
				t.Cleanup(s.Close)
				if cert := s.Certificate(); cert != nil {
					roots.AddCert(cert)
				}
				return s
			}
			first := serve(func(w http.ResponseWriter, r *http.Request) {
				if to := r.URL.Query().Get("to"); to != "" {
					http.Redirect(w, r, to, http.StatusFound)
				}
			})
			client := New(Options{Roots: roots})
			t.Cleanup(client.Close)
			get := func(to string) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, first.URL+"/?to="+to, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			for range 5 {
				get(serve(func(http.ResponseWriter, *http.Request) {}).URL)
			}
			get("/here")
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(10 * time.Second); open.Load() != 1; <-tick.C {
				if time.Now().After(deadline) {
					t.Fatalf("%d connections are open, want the first host's", open.Load())
				}
			}
		})
	}
}

// SPEC-TOOLS 5.4: what an answer leads to is at least as public as the address that gave the answer, and what that
// redirects to is so too.
func TestT54NoLessPublicThanAnAnswer(t *testing.T) {
	client := New(Options{Private: PrivateAll})
	t.Cleanup(client.Close)
	client.is = pretended
	client.pool.Store(client.newPool(client.private))
	at := map[string]string{}
	for class, host := range map[string]string{"public": "127.0.0.2", "private": "127.0.0.3", "loopback": "127.0.0.1"} {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Skipf("no address %s: %v", host, err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, to, leads := strings.Cut(r.URL.RawQuery, "to="); leads {
				http.Redirect(w, r, to, http.StatusFound)
			}
		})}}
		s.Start()
		t.Cleanup(s.Close)
		at[class] = s.URL
	}
	get := func(ctx context.Context, url string) (class string, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		_ = resp.Body.Close()
		return ClassOf(resp), nil
	}
	order := classNames[:]
	for i, from := range order {
		class, err := get(t.Context(), at[from])
		if err != nil || class != from {
			t.Fatalf("%s is %s, %v", from, class, err)
		}
		for j, to := range order {
			_, err := get(NoLessPublic(t.Context(), class), at[to])
			if allowed := j >= i; (err == nil) != allowed {
				t.Errorf("what %s leads to is at %s: %v", from, to, err)
			}
			if _, err = get(NoLessPublic(t.Context(), class), at["public"]+"?to="+at[to]); (err == nil) != (to == "public") {
				t.Errorf("what %s leads to redirects to %s: %v", from, to, err)
			}
		}
	}
	if _, err := get(NoLessPublic(t.Context(), "anything"), at["private"]); err == nil {
		t.Error("an unknown class is not public")
	}
	if ClassOf(&http.Response{}) != "public" {
		t.Error("an answer of nobody is not public")
	}
}
