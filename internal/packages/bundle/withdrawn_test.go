package bundle_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC M3, M5: who installs a server whose version was withdrawn, or which needs one that was, is told so.
func TestM5LocksTellOfWithdrawnVersions(t *testing.T) {
	needs.Time(t, "runs npm and pip")
	for kind, set := range map[string]func(t *testing.T){"npm": deprecating, "pypi": yanking} {
		t.Run(kind, func(t *testing.T) {
			set(t)
			m, err := made(t, fmt.Sprintf(`{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":%q,"identifier":"thing","version":"1.2.3","transport":{"type":"stdio"}}]}`, kind), bundle.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dir, known := t.TempDir(), len(m.Notes)
			if err := m.Write(dir); err != nil {
				t.Fatal(err)
			}
			if locked, err := m.Lock(t.Context(), dir, time.Time{}, locker(t)); err != nil || !locked {
				t.Fatalf("%v %v", locked, err)
			}
			if want := []string{"thing 1.2.3 was withdrawn by its publisher: it eats data"}; !slices.Equal(m.Notes[known:], want) {
				t.Errorf("it says %q", m.Notes[known:])
			}
		})
	}
}

// deprecating has npm ask a registry that has thing 1.2.3, which is deprecated, and below, which is not.
func deprecating(t *testing.T) {
	t.Helper()
	needs.Programs(t, "npm")
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		more := map[string]string{"thing": `"dependencies":{"below":"^1.0.0"},"deprecated":"it eats\ndata",`, "below": `"hasInstallScript":true,`}[name]
		if more == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":%[1]q,"version":"1.2.3",%s"dist":{"tarball":"%s/%[1]s.tgz","integrity":"sha512-AAAA"}}}}`, name, more, s.URL)
	}))
	t.Cleanup(s.Close)
	t.Setenv("NPM_CONFIG_REGISTRY", s.URL)
	t.Setenv("NPM_CONFIG_CACHE", t.TempDir())
}

// yanking has uv ask an index that has thing 1.2.3, which was yanked.
func yanking(t *testing.T) {
	t.Helper()
	needs.Programs(t, "uv", "python3")
	dir := t.TempDir()
	testkit.Wheel(t, dir, "thing", "1.2.3", "def main(): pass\n")
	const file = "thing-1.2.3-py3-none-any.whl"
	sum := sha256.Sum256([]byte(testkit.ReadFile(t, filepath.Join(dir, file))))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case file:
			http.ServeFile(w, r, filepath.Join(dir, file))
		case "thing":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<a href=\"/%s#sha256=%x\" data-yanked=\"it eats data\">%[1]s</a>\n", file, sum)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("UV_DEFAULT_INDEX", s.URL+"/simple/")
	t.Setenv("UV_CACHE_DIR", t.TempDir())
}
