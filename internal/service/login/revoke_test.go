package login

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/outbound"
)

// SPEC N3: an issuer that quotes what it got does not make orla logout print it.
func TestN3LogoutShowsNoSecret(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_request","error_description":"cannot revoke %s of %s"}`, r.FormValue("token"), r.FormValue("client_secret"))
	}))
	defer server.Close()
	for refresh, token := range map[string]string{"refresh-987654321": "refresh-987654321", "": "access-123456789"} {
		r := &Record{
			Class: "loopback", RevocationEndpoint: server.URL, Client: Client{ID: "c", Secret: "client-secret-1", Method: methodPost},
			Access: "access-123456789", Refresh: refresh, Since: time.Now(),
		}
		err := r.revoke(t.Context(), outbound.New(outbound.Options{}))
		if err == nil || !strings.Contains(err.Error(), "cannot revoke") || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "client-secret-1") {
			t.Errorf("the error is %v", err)
		}
	}
}
