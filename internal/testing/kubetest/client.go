package kubetest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Client returns a client whose requests server answers, without any network.
func Client(t testing.TB, server http.RoundTripper) *kubeapi.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'http://api'}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := kubeapi.Load(path, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(config, "test", func(http.RoundTripper) http.RoundTripper { return server })
	if err != nil {
		t.Fatal(err)
	}
	return client
}
