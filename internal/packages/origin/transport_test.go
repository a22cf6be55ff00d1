package origin_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
)

// SPEC M4, S2: a host that a stranger has chosen is not spoken to by HTTP/2, by which it could have Orla wait for ever.
func TestS2HostsOfPackagesAreAskedWithoutHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := origin.Transport(time.Minute)
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	transport.TLSClientConfig.NextProtos = nil
	resp, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "HTTP/1.1" {
		t.Errorf("it was asked by %s (%v)", got, err)
	}
}
