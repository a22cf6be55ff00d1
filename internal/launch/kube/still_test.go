package kube

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch/kube/podio"
)

// SPEC P3: an Orla that was frozen meanwhile does not read what the process of another one says, whose Pod has the name of
// the one that is gone.
func TestP3AnotherPodOfTheNameIsNotRead(t *testing.T) {
	uid := "old"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/log") {
			_, _ = io.WriteString(w, "what it says")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Pod","metadata":{"name":"box","uid":"`+uid+`"}}`)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Kubeconfig: config, Namespace: "tools", Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	p := &process{cluster: c, subject: subject{kind: pods, name: "box", uid: "old"}}
	log, err := p.openLog(t.Context(), podio.Query{})
	if err != nil {
		t.Fatal(err)
	}
	_ = log.Close()
	uid = "new"
	if log, err := p.openLog(t.Context(), podio.Query{}); err == nil || !strings.Contains(err.Error(), "the Pod box is gone") {
		t.Errorf("%v %v", log, err)
	}
}
