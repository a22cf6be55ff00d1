package telemetry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// SPEC S2: a collector is not spoken to by HTTP/2, by which it could have Orla wait for ever.
func TestS2ACollectorIsAskedWithoutHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := newExporter(at, Tracing{Timeout: time.Minute}, nil)
	defer e.cancel()
	transport := e.client.Transport.(*http.Transport)
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	transport.TLSClientConfig.NextProtos = nil
	transport.ForceAttemptHTTP2 = true // a transport with its own TLSClientConfig would not try it otherwise
	resp, err := e.client.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "HTTP/1.1" {
		t.Errorf("it was asked by %s (%v)", got, err)
	}
}
