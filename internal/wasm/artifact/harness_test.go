package artifact_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/wasm/artifact"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// quiet is a log that nobody reads: many clients leave on purpose.
var quiet = log.New(io.Discard, "", 0)

const password = "correct-horse-battery"

// module is a WebAssembly module; those of different texts differ.
func module(text string) []byte {
	custom := append([]byte{byte(1 + len(text)), 0}, text...) // a custom section without a name
	return append([]byte("\x00asm\x01\x00\x00\x00\x00"), custom...)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// fixture is a Store, and what it needs.
type fixture struct {
	*artifact.Store
	room *turns.Room // what a module holds while it is fetched
	dir  string
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// secrets are what the tests' Stores know.
type secrets map[string]string

func (s secrets) resolve(ref secret.Ref) (secret.Value, error) {
	if text, ok := s[ref.Name+":"+ref.Key]; ok {
		return secret.NewValue(text), nil
	}
	return secret.Value{}, fault.New(fault.SecretResolutionFailed, "secret %q: it is not there", ref)
}

// newStore returns a Store that trusts the tests' servers.
func newStore(t *testing.T, opts artifact.Options) *fixture {
	t.Helper()
	f := &fixture{dir: opts.Dir, log: &lockedBuffer{}}
	if f.dir == "" {
		f.dir = filepath.Join(t.TempDir(), "modules")
	}
	opts.Dir = f.dir
	if opts.Client == nil {
		opts.Client = outbound.New(outbound.Options{Private: outbound.PrivateAll, Far: true, Roots: roots(t)})
	}
	t.Cleanup(opts.Client.Close)
	opts.Log = slog.New(slog.NewTextHandler(f.log, nil))
	f.Store = artifact.New(opts)
	f.room = turns.NewRoom(4 * cmp.Or(opts.MaxBytes, 64<<20))
	return f
}

// Fetch is the Store's, for one who lets go of the module at once. Hosts share the room.
func (f *fixture) Fetch(ctx context.Context, address, digest string, pull secret.Ref) ([]byte, error) {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = u.Host
	}
	ctx, release := f.room.Open(ctx, turns.Owner{Session: host})
	defer release()
	return f.Store.Fetch(ctx, address, digest, pull)
}

// Free returns how many bytes of the room nobody holds.
func (f *fixture) Free() int64 { return f.room.Free() }

// roots trusts the certificate that all servers of httptest have.
func roots(t *testing.T) *x509.CertPool {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

// age makes all that is remembered of addresses an hour old.
func (f *fixture) age(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "places", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing is remembered: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var e map[string]any
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		e["looked"] = time.Now().Add(-time.Hour)
		if data, err = json.Marshal(e); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// want fetches what must be there.
func (f *fixture) want(t *testing.T, address, digest string, pull secret.Ref, want []byte) {
	t.Helper()
	got, err := f.Fetch(t.Context(), address, digest, pull)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", address, got, want)
	}
}

// refuse fetches what must fail, and returns why it does.
func (f *fixture) refuse(t *testing.T, address, digest string, pull secret.Ref, code fault.Code, words string) fault.Error {
	t.Helper()
	return f.refuseCtx(t.Context(), t, address, digest, pull, code, words)
}

func (f *fixture) refuseCtx(ctx context.Context, t *testing.T, address, digest string, pull secret.Ref, code fault.Code, words string) fault.Error {
	t.Helper()
	_, err := f.Fetch(ctx, address, digest, pull)
	if err == nil {
		t.Fatalf("%s was fetched", address)
	}
	got := fault.From(err)
	if got.Code != code || !strings.Contains(got.Reason, words) {
		t.Errorf("%s: got %v, want %s: …%s…", address, err, code, words)
	}
	if !got.Unsent {
		t.Errorf("%s: %v: nothing was sent to the tool, and the error does not say so", address, err)
	}
	if strings.Contains(err.Error()+f.log.String(), password) {
		t.Errorf("%s: the password is in the error or the log: %v", address, err)
	}
	return *got
}

// server counts the requests to a handler.
type server struct {
	*httptest.Server
	requests atomic.Int64
	down     atomic.Bool // it answers 503
}

func newServer(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if s.down.Load() {
			http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
			return
		}
		handler(w, r)
	}))
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// repository is a repository of a real registry, and how its blobs are served.
type repository struct {
	*server
	host string
	// admit answers requests without the right credentials. May be nil.
	admit func(http.ResponseWriter, *http.Request) bool
	// blob serves blobs in the registry's place. May be nil, and decline.
	blob func(http.ResponseWriter, *http.Request) bool
	open http.Handler // the registry itself
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{open: registry.New(registry.Logger(quiet))}
	r.server = newServer(t, func(w http.ResponseWriter, req *http.Request) {
		if r.admit != nil && !r.admit(w, req) {
			return
		}
		if r.blob != nil && strings.Contains(req.URL.Path, "/blobs/") && r.blob(w, req) {
			return
		}
		r.open.ServeHTTP(w, req)
	})
	r.host = strings.TrimPrefix(r.URL, "https://")
	return r
}

// address is the address of a tag.
func (r *repository) address(tag string) string { return "oci://" + r.host + "/team/echo:" + tag }

// layer is a layer's type and content.
type layer struct {
	kind string
	data []byte
}

// push pushes an image with the real client, past what admits others, and returns
// its manifest.
func (r *repository) push(t *testing.T, tag string, layers ...layer) ocispec.Descriptor {
	t.Helper()
	back := httptest.NewUnstartedServer(r.open)
	back.Config.ErrorLog = quiet
	back.StartTLS()
	defer back.Close()
	repo, err := remote.NewRepository(strings.TrimPrefix(back.URL, "https://") + "/team/echo")
	if err != nil {
		t.Fatal(err)
	}
	repo.Client = back.Client()
	local := memory.New()
	var descs []ocispec.Descriptor
	for _, l := range layers {
		desc, err := oras.PushBytes(t.Context(), local, l.kind, l.data)
		if err != nil {
			t.Fatal(err)
		}
		descs = append(descs, desc)
	}
	manifest, err := oras.PackManifest(t.Context(), local, oras.PackManifestVersion1_1, "application/vnd.wasm.config.v0+json", oras.PackManifestOptions{Layers: descs})
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Tag(t.Context(), manifest, tag); err != nil {
		t.Fatal(err)
	}
	if _, err := oras.Copy(t.Context(), local, tag, repo, tag, oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// put puts a manifest that no client would make.
func (r *repository) put(t *testing.T, tag, kind, manifest string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v2/team/echo/manifests/"+tag, strings.NewReader(manifest))
	req.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	r.open.ServeHTTP(w, req)
	if w.Code != http.StatusCreated {
		t.Fatalf("put %s: %d %s", tag, w.Code, w.Body)
	}
}

// basic admits whoever knows the password by HTTP Basic.
func basic(w http.ResponseWriter, r *http.Request) bool {
	if user, given, _ := r.BasicAuth(); user == "ada" && given == password {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
	http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no, `+r.Header.Get("Authorization")+`"}]}`, http.StatusUnauthorized)
	return false
}

// bearer admits whoever has a token of the service at realm.
func bearer(realm string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer given-for-team-echo" {
			return true
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:team/echo:pull"`, realm))
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who?"}]}`, http.StatusUnauthorized)
		return false
	}
}

// tokens is a token service.
func tokens(t *testing.T) *server {
	return newServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		if user != "ada" || given != password || r.URL.Query().Get("service") != "registry" {
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no, `+given+`"}]}`, http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"token":"given-for-team-echo"}`)
	})
}

func dockerConfig(auths map[string]string) string {
	entries := map[string]any{}
	for host, pair := range auths {
		entries[host] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(pair))}
	}
	data, err := json.Marshal(map[string]any{"auths": entries})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func ref(name string) secret.Ref {
	return secret.Ref{Namespace: secret.DefaultNamespace, Name: name, Key: secret.DefaultKey}
}
