package program

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// SPEC-TOOLS 3.7: modules come from https:// and oci:// addresses, a private
// registry's by its pull secret, and from this machine only as the operator says.
func TestT37ModulesFromAfar(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux takes the authorities that it trusts from SSL_CERT_FILE")
	}
	const password = "correct-horse-battery"
	module := guest()
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(module))
	hub := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		switch {
		case strings.HasSuffix(r.URL.Path, "/guest.wasm"):
			_, _ = w.Write(module)
		case user == "ada" && given == password:
			hub.ServeHTTP(w, r)
		default:
			w.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	pushImage(t, hub, module, digest)

	dir := t.TempDir()
	authority := filepath.Join(dir, "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", authority)
	t.Setenv("ORLOJ_SECRET_REGISTRY", "ada:"+password)
	t.Setenv("ORLA_ALLOW_PRIVATE_ENDPOINTS", "all")
	host := strings.TrimPrefix(server.URL, "https://")
	for name, wasm := range map[string]string{
		"web":    "module: " + server.URL + "/guest.wasm",
		"pinned": "module: " + server.URL + "/guest.wasm@" + digest,
		"other":  "module: " + server.URL + "/guest.wasm@sha256:" + strings.Repeat("0", 64),
		"image":  "image_pull_secret: registry, module: oci://" + host + "/team/guest:v1",
		"near":   "module: " + server.URL + "/near/guest.wasm",
		"secret": "module: oci://" + host + "/team/guest:v1",
	} {
		text := "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: " + name + "}\nspec: {type: wasm, wasm: {enable_wasi: true, " + wasm + "}}\n"
		if err := os.MkdirAll(filepath.Join(dir, "tools"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tools", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"web": "from afar", "pinned": "from afar", "image": "from afar",
		"other": "its digest is " + digest, "secret": "name a secret in image_pull_secret",
	} {
		out, _ := orla(t, dir, "call", name, "--arg", "say=~{'contract_version':'v1','status':'ok','output':'from afar'}~")
		if !strings.Contains(out, want) || strings.Contains(out, password) {
			t.Errorf("%s: got %s, want %s", name, out, want)
		}
	}
	t.Setenv("ORLA_ALLOW_PRIVATE_ENDPOINTS", "loopback") // for other tools, and not for modules
	if out, err := orla(t, dir, "call", "near"); err == nil || !strings.Contains(out, `"all" would allow it`) {
		t.Errorf("a module of this machine: %v: %s", err, out)
	}
}

// pushImage puts an image of one module into a registry.
func pushImage(t *testing.T, hub http.Handler, module []byte, digest string) {
	t.Helper()
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"layers":[{"mediaType":"application/wasm","digest":%q,"size":%d}]}`, digest, len(module))
	for _, put := range []struct{ method, path, kind, body string }{
		{http.MethodPost, "/v2/team/guest/blobs/uploads/?digest=" + digest, "application/octet-stream", string(module)},
		{http.MethodPut, "/v2/team/guest/manifests/v1", "application/vnd.oci.image.manifest.v1+json", manifest},
	} {
		req := httptest.NewRequestWithContext(t.Context(), put.method, put.path, strings.NewReader(put.body))
		req.Header.Set("Content-Type", put.kind)
		w := httptest.NewRecorder()
		hub.ServeHTTP(w, req)
		if w.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", put.method, put.path, w.Code, w.Body)
		}
	}
}
