package artifact_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm/artifact"
)

// SPEC-TOOLS 3.7: what https:// addresses give is a module, the one that was asked
// for, and over TLS alone.
func TestT37WebModules(t *testing.T) {
	echo, page := module("echo"), "<html>Sign in</html>"
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(echo) }))
	t.Cleanup(plain.Close)
	other := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if cookie := r.Header.Get("Cookie") + r.Header.Get("Authorization") + r.Header.Get("Referer"); cookie != "" {
			t.Errorf("another host was shown %q", cookie)
		}
		_, _ = w.Write(echo)
	})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo.wasm":
			_, _ = w.Write(echo)
		case "/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/plain":
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/page":
			_, _ = io.WriteString(w, page)
		case "/component":
			_, _ = io.WriteString(w, "\x00asm\x0d\x00\x01\x00")
		case "/announced":
			w.Header().Set("Content-Length", "1000000000000")
		case "/endless":
			for block := make([]byte, 64<<10); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		case "/packed":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(echo)
		default:
			status, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
			if err != nil {
				status = http.StatusNotFound
			}
			w.Header().Set("Retry-After", "7")
			http.Error(w, "no such file", status)
		}
	})
	f := newStore(t, artifact.Options{MaxBytes: 1 << 20})
	f.want(t, s.URL+"/echo.wasm", "", secret.Ref{}, echo)
	f.want(t, s.URL+"/echo.wasm", digestOf(echo), secret.Ref{}, echo)
	f.want(t, s.URL+"/elsewhere", "", secret.Ref{}, echo)

	for _, c := range []struct {
		path, digest string
		code         fault.Code
		words        string
	}{
		{"/echo.wasm", digestOf([]byte("another")), fault.RuntimePolicyInvalid, "its digest is " + digestOf(echo)},
		{"/echo.wasm", "sha256:123", fault.RuntimePolicyInvalid, "64 hexadecimal"},
		{"/echo.wasm", "sha256:../../../../etc/passwd", fault.RuntimePolicyInvalid, "64 hexadecimal"},
		{"/plain", "", fault.RuntimePolicyInvalid, "which is not https"},
		{"/file", "", fault.ExecutionFailed, "not http or https"},
		{"/round", "", fault.ExecutionFailed, "more than 5 times"},
		{"/page", "", fault.RuntimePolicyInvalid, "not a WebAssembly module"},
		{"/component", "", fault.RuntimePolicyInvalid, "component"},
		{"/announced", "", fault.RuntimePolicyInvalid, "over 1 MiB"},
		{"/endless", "", fault.RuntimePolicyInvalid, "over 1 MiB"},
		{"/packed", "", fault.RuntimePolicyInvalid, "encoding"},
		{"/404", "", fault.RuntimePolicyInvalid, "404 Not Found"},
		{"/401", "", fault.AuthInvalid, "401"},
		{"/403", "", fault.AuthForbidden, "403"},
		{"/429", "", fault.RateLimited, "429"},
		{"/503", "", fault.ExecutionFailed, "503"},
	} {
		got := f.refuse(t, s.URL+c.path, c.digest, secret.Ref{}, c.code, c.words)
		if retryable := c.path == "/429" || c.path == "/503"; got.Retryable() != retryable {
			t.Errorf("%s: retryable is %t", c.path, got.Retryable())
		}
		if c.path == "/429" && got.RetryAfter != 7*time.Second {
			t.Errorf("Retry-After is taken for %s", got.RetryAfter)
		}
	}
	for address, words := range map[string]string{
		strings.Replace(s.URL, "https", "http", 1) + "/echo.wasm":             "begins with",
		strings.Replace(s.URL, "//", "//ada:"+password+"@", 1) + "/echo.wasm": "credentials",
		"https:///echo.wasm": "not a URL",
		"https://%zz":        "not a URL",
		"file:///etc/passwd": "begins with",
	} {
		f.refuse(t, address, "", secret.Ref{}, fault.RuntimePolicyInvalid, words)
	}
	f.refuse(t, s.URL+"/404?token="+password, "", secret.Ref{}, fault.RuntimePolicyInvalid, "404") // the query is a secret
}

// SPEC-TOOLS 5.4: a module comes from no private address, whatever a name means,
// and neither from this machine, which tools may reach.
func TestT54ModulesComeFromAfar(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	for private, words := range map[outbound.Private]string{
		outbound.PrivateNone:     `"all" would allow it`,
		outbound.PrivateLoopback: `"all" would allow it`,
	} {
		f := newStore(t, artifact.Options{Client: outbound.New(outbound.Options{Private: private, Far: true, Roots: roots(t)})})
		f.refuse(t, s.URL, "", secret.Ref{}, fault.RuntimePolicyInvalid, words)
		f.refuse(t, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), "", secret.Ref{}, fault.RuntimePolicyInvalid, words)
		f.refuse(t, strings.Replace(s.URL, "https", "oci", 1)+"/team/echo:1", "", secret.Ref{}, fault.RuntimePolicyInvalid, words)
		f.refuse(t, "https://10.1.2.3/echo.wasm", "", secret.Ref{}, fault.RuntimePolicyInvalid, "private")
	}
	f := newStore(t, artifact.Options{})
	f.refuse(t, "https://169.254.169.254/echo.wasm", "", secret.Ref{}, fault.RuntimePolicyInvalid, "link-local")
	f.refuse(t, "oci://169.254.169.254/team/echo:1", "", secret.Ref{}, fault.RuntimePolicyInvalid, "link-local")
	if n := s.requests.Load(); n > 0 {
		t.Errorf("%d requests were made", n)
	}
}

// SPEC-TOOLS 3.7: TLS means one of this decade, with a certificate that is trusted.
func TestT37WebTLS(t *testing.T) {
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // it is what must be refused
	old.Config.ErrorLog = quiet
	old.StartTLS()
	t.Cleanup(old.Close)
	f := newStore(t, artifact.Options{})
	f.refuse(t, old.URL, "", secret.Ref{}, fault.ExecutionFailed, "version")

	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	f = newStore(t, artifact.Options{Client: outbound.New(outbound.Options{Private: outbound.PrivateAll})})
	if got := f.refuse(t, s.URL, "", secret.Ref{}, fault.ExecutionFailed, "not trusted"); got.Retryable() {
		t.Error("a certificate that is not trusted may be tried again")
	}
}

// A server that sends a byte now and then ends with its caller's patience.
func TestT37SlowServers(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "\x00asm")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f := newStore(t, artifact.Options{})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, fault.New(fault.Timeout, "over"))
	defer cancel()
	f.refuseCtx(ctx, t, s.URL, "", secret.Ref{}, fault.Timeout, "over")
}

// What has a digest and was fetched before needs no network.
func TestT37PinnedModulesAreKept(t *testing.T) {
	echo := module("echo")
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(echo) })
	f := newStore(t, artifact.Options{})
	f.want(t, s.URL, digestOf(echo), secret.Ref{}, echo)
	s.Close()
	f.want(t, s.URL, digestOf(echo), secret.Ref{}, echo)
	newStore(t, artifact.Options{Dir: f.dir}).want(t, s.URL, digestOf(echo), secret.Ref{}, echo)

	if info, err := os.Stat(f.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v %v; want 0700", info.Mode(), err)
	}
	path := filepath.Join(f.dir, "blobs", "sha256", strings.TrimPrefix(digestOf(echo), "sha256:"))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the module is %v %v; want 0600", info.Mode(), err)
	}
}

// What is kept is checked whenever it is used.
func TestT37DamagedModulesAreFetchedAgain(t *testing.T) {
	echo := module("echo")
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(echo) })
	f := newStore(t, artifact.Options{MaxBytes: 1 << 20})
	f.want(t, s.URL, digestOf(echo), secret.Ref{}, echo)
	path := filepath.Join(f.dir, "blobs", "sha256", strings.TrimPrefix(digestOf(echo), "sha256:"))
	for _, damage := range [][]byte{module("evil"), nil, make([]byte, 2<<20)} {
		if err := os.WriteFile(path, damage, 0o600); err != nil {
			t.Fatal(err)
		}
		before := s.requests.Load()
		f.want(t, s.URL, digestOf(echo), secret.Ref{}, echo)
		if s.requests.Load() != before+1 {
			t.Error("it was not fetched again")
		}
	}
}

// What has no digest is looked for again, but not always.
func TestT37ModulesAreLookedForAgain(t *testing.T) {
	current := module("one")
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		tag := `"` + digestOf(current) + `"`
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		_, _ = w.Write(current)
	})
	f := newStore(t, artifact.Options{})
	asked := func(want int64) {
		t.Helper()
		if got := s.requests.Load(); got != want {
			t.Fatalf("the server was asked %d times; want %d", got, want)
		}
	}
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	asked(1)
	f.age(t)
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	asked(2)
	current = module("two")
	f.want(t, s.URL, "", secret.Ref{}, module("one")) // it lasts
	f.age(t)
	f.want(t, s.URL, "", secret.Ref{}, module("two"))
	asked(3)

	f.age(t)
	s.down.Store(true)
	f.want(t, s.URL, "", secret.Ref{}, module("two"))
	if log := f.log.String(); !strings.Contains(log, "serving the module that was fetched before") || !strings.Contains(log, "503") {
		t.Errorf("the log does not say that the server is down: %s", log)
	}
	f.want(t, s.URL, "", secret.Ref{}, module("two")) // it is left alone for a while
	asked(4)
}

// What was taken away is not served any longer.
func TestT37WithdrawnModules(t *testing.T) {
	var status int
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		_, _ = w.Write(module("one"))
	})
	f := newStore(t, artifact.Options{})
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.age(t)
	status = http.StatusGone
	f.refuse(t, s.URL, "", secret.Ref{}, fault.RuntimePolicyInvalid, "410")
	status = http.StatusForbidden
	f.refuse(t, s.URL, "", secret.Ref{}, fault.AuthForbidden, "403")
}

// A server that hangs leaves time to use what was fetched before.
func TestT37HangingServers(t *testing.T) {
	var hang bool
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if hang {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(module("one"))
	})
	f := newStore(t, artifact.Options{})
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.age(t)
	hang = true
	for within := time.Second; ; within *= 2 { // a busy machine may take longer to read a file
		ctx, cancel := context.WithTimeout(t.Context(), within)
		got, err := f.Fetch(ctx, s.URL, "", secret.Ref{})
		cancel()
		if err == nil && string(got) == string(module("one")) {
			break
		}
		if err == nil || within > testkit.Patience {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// What is kept does not grow without end, and goes in the order of its use.
func TestT37KeptModulesAreBounded(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(module(r.URL.Path)) })
	f := newStore(t, artifact.Options{MaxCache: int64(3 * len(module("/1")))})
	use := func(path string, requests int64) {
		t.Helper()
		before := s.requests.Load()
		f.want(t, s.URL+path, digestOf(module(path)), secret.Ref{}, module(path))
		if got := s.requests.Load() - before; got != requests {
			t.Errorf("%s: %d requests; want %d", path, got, requests)
		}
		// Times of files may be coarse: what was used earlier is made so.
		files, err := filepath.Glob(filepath.Join(f.dir, "blobs", "sha256", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err == nil {
				at := info.ModTime().Add(-time.Minute)
				if err := os.Chtimes(file, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	use("/1", 1)
	use("/2", 1)
	use("/3", 1)
	use("/1", 0)
	use("/4", 1) // in the place of /2
	use("/1", 0)
	use("/3", 0)
	use("/2", 1)
}

// A folder that cannot be written to keeps nothing, and fails no call.
func TestT37NowhereToKeep(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(module("one")) })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := newStore(t, artifact.Options{Dir: filepath.Join(file, "modules")})
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.want(t, s.URL, digestOf(module("one")), secret.Ref{}, module("one"))
	if !strings.Contains(f.log.String(), "not kept") {
		t.Errorf("the log does not say so: %s", f.log)
	}
}

// What somebody else keeps in the folder is not taken for what an address has.
func TestT37FoldersOfOthers(t *testing.T) {
	// SPEC-TOOLS 3.7: modules from https and oci.
	needs.Root(t, "give a folder away")
	var serves atomic.Value
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(serves.Load().([]byte)) })
	first, second := module("first"), module("second")
	for _, sub := range []string{"", "places"} {
		t.Run("folder "+sub, func(t *testing.T) {
			f := newStore(t, artifact.Options{})
			serves.Store(first)
			f.want(t, s.URL+"/m.wasm", "", secret.Ref{}, first)
			if err := os.Chown(filepath.Join(f.dir, sub), 65532, 65532); err != nil {
				t.Fatal(err)
			}
			serves.Store(second)
			later := newStore(t, artifact.Options{Dir: f.dir})
			later.want(t, s.URL+"/m.wasm", "", secret.Ref{}, second)
		})
	}
}

// Many who want the same are one for the server; one who goes away takes nobody along.
func TestT37OneFetchForMany(t *testing.T) {
	arrived, proceed := make(chan struct{}, 100), make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-proceed:
			_, _ = w.Write(module("one"))
		case <-r.Context().Done():
		}
	})
	f := newStore(t, artifact.Options{})
	first, leave := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		f.refuseCtx(first, t, s.URL, "", secret.Ref{}, fault.Canceled, "")
	})
	<-arrived
	for range 20 {
		wg.Go(func() { f.want(t, s.URL, "", secret.Ref{}, module("one")) })
	}
	leave(context.Canceled)
	<-arrived
	close(proceed)
	wg.Wait()
	if n := s.requests.Load(); n != 2 {
		t.Errorf("%d requests; want one of who left, and one for the rest", n)
	}
}

// Whoever waits for another's fetch still goes when it wants to.
func TestT37WaitingEnds(t *testing.T) {
	arrived := make(chan struct{}, 1)
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	f := newStore(t, artifact.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.refuseCtx(ctx, t, s.URL, "", secret.Ref{}, fault.Canceled, "") })
	<-arrived
	impatient, leave := context.WithCancelCause(t.Context())
	leave(errors.New("no time"))
	f.refuseCtx(impatient, t, s.URL, "", secret.Ref{}, fault.ExecutionFailed, "")
	cancel()
	wg.Wait()
}
