package bundle_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/testing/needs"
)

// locker writes locks without a sandbox, which not every machine of a test has.
func locker(t *testing.T) deps.Locker {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Close)
	return deps.Locker{Options: deps.Options{
		Environ: os.Environ(), Log: log, ConfinedUser: os.Geteuid(), Confine: func([]string) launch.Launcher { return local.Launcher() },
	}}
}

// SPEC R6: what a package of npm needs of git, of an address or of this machine is not fetched while its lock is written, and a lock
// that an installed package may not have is refused at once.
func TestR6LocksAskTheRegistryAlone(t *testing.T) {
	needs.Time(t, "runs npm")
	needs.Programs(t, "npm")
	var mu sync.Mutex
	below, asked := "", []string(nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/thing" {
			asked = append(asked, r.URL.Path)
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"name":"thing","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"thing","version":"1.2.3","dependencies":{"below":%q},"dist":{"tarball":"http://%s/thing.tgz","integrity":"sha512-AAAA"}}}}`, below, r.Host)
	}))
	defer s.Close()
	ran := filepath.Join(t.TempDir(), "git-ran")
	bin := folder(t, map[string]string{"git": "#!/bin/sh\ntouch " + ran + "\nexit 1\n"})
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("NPM_CONFIG_REGISTRY", s.URL)
	for _, needed := range []string{"git+https://localhost:1/x.git", "git+file:///nowhere", s.URL + "/secret-service", "file:/etc"} {
		mu.Lock()
		below = needed
		mu.Unlock()
		m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"npm","identifier":"thing","version":"1.2.3"}]}`, bundle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := m.Lock(t.Context(), dir, time.Time{}, locker(t)); err == nil {
			t.Errorf("%s: there is a lock", needed)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v %v", needed, entries, err)
		}
		mu.Lock()
		if len(asked) > 0 {
			t.Errorf("%s: the service was asked for %v", needed, asked)
		}
		asked = nil
		mu.Unlock()
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("git ran")
	}
}

// SPEC M5: an installer that writes a lock has none of the variables of the user's that it need not know, and no file of the user's.
func TestM5LocksSeeNoSecrets(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	bin := folder(t, map[string]string{"npm": "#!/bin/sh\n{ echo \"$@\"; env; ls -a; } >" + said + "\necho '{\"lockfileVersion\":3,\"packages\":{}}' >package-lock.json\n"})
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", "this-is-my-secret")
	m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"npm","registryBaseUrl":"https://npm.example.com/x/","identifier":"thing","version":"1.2.3"}]}`, bundle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Lock(t.Context(), t.TempDir(), time.Time{}, locker(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(said)
	if err != nil || strings.Contains(string(text), "this-is-my-secret") || strings.Contains(string(text), "HOME="+os.Getenv("HOME")+"\n") ||
		strings.Contains(string(text), ".npmrc") || !strings.Contains(string(text), "--registry=https://npm.example.com/x") {
		t.Errorf("npm sees %v %s", err, text)
	}
}

// SPEC M3: an installer puts variables in the place of their names in the address of an index, so such an address is refused, as is
// one of this machine that a registry elsewhere names.
func TestM3IndexesHavePlainAddresses(t *testing.T) {
	for _, kind := range []string{"npm", "pypi"} {
		for _, base := range []string{
			"https://a.example/${HOME}/simple", "https://a.example/$HOME", "https://${HOME}.a.example", "https://a.example/%HOME%", "https://a.example/{x}",
			"https://a.example/a b", "https://a.example/x?y=${HOME}", "https://a.example/\\n--find-links", "https://me:pw@a.example", "http://a.example",
			"https://127.0.0.1:1/x", "https://[::1]:1", "https://127.1/", "https://0.0.0.0/", "https://2130706433/", "https://localhost./x",
		} {
			raw := fmt.Sprintf(`{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":%q,"registryBaseUrl":"%s","identifier":"thing","version":"1.2.3"}]}`, kind, base)
			if _, err := made(t, raw, bundle.Options{}); err == nil || !strings.Contains(err.Error(), "its index") {
				t.Errorf("%s %s: %v", kind, base, err)
			}
		}
	}
}

// SPEC M3: a registry elsewhere cannot name a bundle of this machine, and a bundle's host cannot redirect there, in any spelling.
func TestM3BundlesAreNotOfThisMachine(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.1", "0.0.0.0", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "localhost."} {
		raw := fmt.Sprintf(`{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"mcpb","identifier":"https://%s:1/x.mcpb","fileSha256":%q}]}`, host, strings.Repeat("0", 64))
		if _, err := made(t, raw, bundle.Options{}); err == nil || !strings.Contains(err.Error(), "its bundle may be on this machine") {
			t.Errorf("%s: %v", host, err)
		}
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+host+":1/x", http.StatusFound)
		}))
		d := bundle.Download{URL: s.URL + "/x.mcpb", SHA256: strings.Repeat("0", 64)}
		err := bundle.Fetch(t.Context(), d, filepath.Join(t.TempDir(), "x"), origin.Limits{}, s.Client().Transport)
		if err == nil || !strings.Contains(err.Error(), "redirects to a place that is not accepted") {
			t.Errorf("%s: %v", host, err)
		}
		s.Close()
	}
}
