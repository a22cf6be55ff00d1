package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/faultproxy"
)

// proxied starts a server that answers 10 000 bytes behind a proxy.
func proxied(t *testing.T) (*faultproxy.Proxy, *http.Client) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return faultproxy.New(t, server.Listener.Addr().String()), client
}

func ask(t *testing.T, client *http.Client, p *faultproxy.Proxy) (status, size int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr(), strings.NewReader("ask"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, len(body), err
}

func TestAFaultIsOfOneConnectionAndTheNextIsWell(t *testing.T) {
	cases := map[string]struct {
		fault faultproxy.Fault
		fits  func(status, size int, err error) bool
	}{
		"refused":        {faultproxy.Fault{Refuse: true}, func(_, _ int, err error) bool { return err != nil }},
		"swallowed":      {faultproxy.Fault{Swallow: true}, func(_, _ int, err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) }},
		"answered":       {faultproxy.Fault{Instead: "HTTP/1.1 429 Slow\r\nContent-Length: 2\r\n\r\nno"}, func(status, size int, err error) bool { return status == 429 && size == 2 && err == nil }},
		"cut":            {faultproxy.Fault{After: 5000, Then: faultproxy.Cut}, func(_, size int, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) && size < 5000 }},
		"reset":          {faultproxy.Fault{After: 5000, Then: faultproxy.Reset}, func(_, _ int, err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		"delayed":        {faultproxy.Fault{Delay: time.Millisecond}, func(status, size int, err error) bool { return status == 200 && size == 10_000 && err == nil }},
		"without a flaw": {faultproxy.Fault{}, func(status, size int, err error) bool { return status == 200 && size == 10_000 && err == nil }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, client := proxied(t)
			p.Next(c.fault)
			if status, size, err := ask(t, client, p); !c.fits(status, size, err) {
				t.Errorf("status %d, %d bytes, error %v", status, size, err)
			}
			client.CloseIdleConnections()
			if status, size, err := ask(t, client, p); status != 200 || size != 10_000 || err != nil {
				t.Errorf("the next connection: status %d, %d bytes, error %v", status, size, err)
			}
			if n := p.Connections(); n != 2 {
				t.Errorf("connections = %d; want 2", n)
			}
		})
	}
}

func TestAStallLastsUntilItIsBroken(t *testing.T) {
	p, client := proxied(t)
	p.Always(faultproxy.Fault{After: 200, Then: faultproxy.Stall})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Break()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error = %v; want a reset", err)
	}
}
