package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/registry"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/mcpregistry"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0J8VbJvCkjJMGJX3lYw0Y3yXQzv0mH1Jm4yqfTIqB8"

const index = `version: 1
registry_url: https://github.com/dorcha-inc/orla-registry
tools:
  - name: fs
    description: Local filesystem access
    repository: https://github.com/dorcha-inc/orla-tool-fs
    maintainer: dorcha-inc
    keywords: [filesystem, file-access]
    signers:
      - ` + key + ` somebody
  - name: http
    description: HTTP request tool, without files
    repository: https://github.com/dorcha-inc/orla-tool-http
  - name: file-search
    description: "Search in \e[31mfiles"
    repository: git@example.com:orla/file-search.git
`

// indexed makes a git registry with a registry.yaml and returns its URL, and how to change the file.
func indexed(t *testing.T, text string) (url string, change func(string)) {
	t.Helper()
	needs.Programs(t, "git")
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	change = func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "registry.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
		git("commit", "-q", "--allow-empty", "-m", "x")
	}
	change(text)
	return "file://" + dir, change
}

var local = registry.Options{Git: origin.Git{Local: true}}

// age makes everything in a cache older.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chtimes(path, time.Time{}, info.ModTime().Add(-by))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// RFC 3, sections 6.1 to 6.3; SPEC M2: a registry is a git repository with a registry.yaml. A name leads to a repository.
func TestRFC3S6_3RegistryIndex(t *testing.T) {
	url, _ := indexed(t, index)
	r := registry.New(t.TempDir(), []string{url}, local)
	e, err := r.Find(t.Context(), "fs", "")
	if err != nil || e.Repository != "https://github.com/dorcha-inc/orla-tool-fs" || e.Maintainer != "dorcha-inc" || len(e.Keywords) != 2 || len(e.Signers) != 1 || e.Signers[0] != key || e.Registry != url {
		t.Errorf("%+v %v", e, err)
	}
	for name, want := range map[string]string{"htp": `did you mean "http"?`, "file_search": `did you mean "file-search"?`, "something": `no registry has "something"`, "a b": "cannot be the name", "../fs": "cannot be the name", "io.github.a/b": "no registry of MCP servers"} {
		if _, err := r.Find(t.Context(), name, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for query, want := range map[string]string{"fs": "fs", "file": "file-search fs http", "filesystem": "fs", "http tool": "http", "": "file-search fs http", "fiel-search": "file-search", "nothing of this": ""} {
		asked, err := r.Search(t.Context(), query)
		var names []string
		for _, e := range asked.Entries {
			names = append(names, e.Name)
			if strings.Contains(e.Description, "\x1b") {
				t.Errorf("%q has an escape", e.Description)
			}
		}
		if err != nil || strings.Join(names, " ") != want || asked.Age != 0 || asked.Problems != nil {
			t.Errorf("%q: %v %v %v", query, names, asked, err)
		}
	}
}

// RFC 3, sections 6.3 and 5.2: each entry has a unique name, a description and a repository. A file that is not in the form is
// refused as a whole, with the place of each fault.
func TestRFC3S6_3FaultyIndexes(t *testing.T) {
	const one = "version: 1\ntools:\n  - name: a\n    description: x\n    repository: https://example.com/a\n"
	for text, want := range map[string]string{
		"tools: []\n":             "version",
		"version: 2\ntools: []\n": "registry.yaml:1:10: version: must be 1",
		"version: 1\n":            "tools",
		one + "  - name: A\n    description: x\n    repository: https://example.com/b\n": `registry.yaml:6:11: tools[1].name: "A" is there twice`,
		strings.Replace(one, "    description: x\n", "", 1):                              "description",
		strings.Replace(one, "description: x", "description: ' '", 1):                    "description",
		strings.Replace(one, "    repository: https://example.com/a\n", "", 1):           "repository",
		strings.Replace(one, "https://example.com/a", "http://example.com/a", 1):         "only accepted from this machine",
		strings.Replace(one, "https://example.com/a", "http://127.0.0.1/a", 1):           "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "'git@localhost:a'", 1):            "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "https://0.0.0.0/a", 1):            "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "https://127.1/a", 1):              "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "https://localhost./a", 1):         "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "'git@0:a'", 1):                    "cannot name a repository on this machine",
		strings.Replace(one, "https://example.com/a", "file:///etc", 1):                  "only read if that is asked for",
		strings.Replace(one, "https://example.com/a", "'ext::sh -c id'", 1):              "characters that are not allowed",
		strings.Replace(one, "name: a", "name: ../a", 1):                                 "must be 1 to 64 letters",
		one + "    signers: []\n":          "signers",
		one + "    signers: [ssh-dss x]\n": "signers[0]: a signer is an SSH public key",
		one + "    surprise: 1\n":          "unknown key",
		one + "    keywords: x\n":          "keywords",
		"[1":                               "registry.yaml:1",
		"":                                 "version",
		one + "x: &a [*a]\n":               "registry.yaml",
		strings.Repeat("#", 5<<20):         "registry.yaml",
	} {
		if _, err := registry.Parse("registry.yaml", []byte(text), "https://example.com/r", true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v", text, err)
		}
	}
	url, _ := indexed(t, "version: 1\ntools: 3\n")
	if _, err := registry.New(t.TempDir(), []string{url}, local).Find(t.Context(), "fs", ""); err == nil || !strings.Contains(err.Error(), "registry.yaml:2:") {
		t.Errorf("%v", err)
	}
}

// SPEC M8: an answer is used for an hour. Then the registry is asked again, and without a network the cache answers, with
// its age. Clear removes it, and nothing else.
func TestM8TheCacheAnswersOffline(t *testing.T) {
	url, change := indexed(t, index)
	cache := t.TempDir()
	r := registry.New(cache, []string{url}, local)
	first, err := r.Find(t.Context(), "fs", "")
	if err != nil {
		t.Fatal(err)
	}
	change(strings.Replace(index, "Local filesystem", "All", 1))
	if e, err := r.Find(t.Context(), "fs", ""); err != nil || e.Description != first.Description || e.Age != 0 {
		t.Errorf("within an hour: %+v %v", e, err)
	}
	age(t, cache, 2*time.Hour)
	if e, err := r.Find(t.Context(), "fs", ""); err != nil || e.Description != "All access" || e.Age != 0 {
		t.Errorf("after two: %+v %v", e, err)
	}
	age(t, cache, 2*time.Hour)
	if err := os.Rename(strings.TrimPrefix(url, "file://"), strings.TrimPrefix(url, "file://")+".away"); err != nil {
		t.Fatal(err)
	}
	if asked, err := r.Search(t.Context(), "fs"); err != nil || len(asked.Entries) != 1 || asked.Age.Round(time.Hour) != 2*time.Hour || asked.Entries[0].Age.Round(time.Hour) != 2*time.Hour {
		t.Errorf("gone: %+v %v", asked, err)
	}
	mine := filepath.Join(cache, "mine")
	if err := errors.Join(os.WriteFile(mine, nil, 0o600), r.Clear(), r.Clear()); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(cache); err != nil || len(list) != 1 || list[0].Name() != "mine" {
		t.Errorf("%v %v", list, err)
	}
	if asked, err := r.Search(t.Context(), "fs"); err != nil || len(asked.Problems) != 1 {
		t.Errorf("cleared: %+v %v", asked, err)
	}
	if _, err := r.Find(t.Context(), "fs", ""); err == nil {
		t.Error("cleared: no error")
	}
}

// A name is never taken from a later registry while an earlier one does not say whether it has it: whoever can silence
// one could exchange its packages.
func TestM3RegistriesAreAskedInOrder(t *testing.T) {
	first, _ := indexed(t, strings.Replace(index, "orla-tool-fs", "first", 1))
	second, _ := indexed(t, index+"  - {name: more, description: x, repository: 'https://example.com/more'}\n")
	r := registry.New(t.TempDir(), []string{first, second}, local)
	if e, err := r.Find(t.Context(), "fs", ""); err != nil || !strings.HasSuffix(e.Repository, "first") {
		t.Errorf("%+v %v", e, err)
	}
	if e, err := r.Find(t.Context(), "more", ""); err != nil || e.Registry != second {
		t.Errorf("%+v %v", e, err)
	}
	r = registry.New(t.TempDir(), []string{"file:///nowhere/at/all", second}, local)
	if e, err := r.Find(t.Context(), "fs", ""); err == nil || !strings.Contains(err.Error(), "registry file:///nowhere/at/all: git") {
		t.Errorf("%+v %v", e, err)
	}
	if asked, err := r.Search(t.Context(), "fs"); err != nil || len(asked.Entries) != 1 || len(asked.Problems) != 1 {
		t.Errorf("%+v %v", asked, err)
	}
	if _, err := registry.New(t.TempDir(), nil, local).Find(t.Context(), "fs", ""); err == nil || !strings.Contains(err.Error(), "no registry of packages") {
		t.Errorf("%v", err)
	}
}

// SPEC M3: the API of MCP registries is read: by name, by search, in pages, with what was deleted left out and what is deprecated
// marked.
func TestM3MCPRegistry(t *testing.T) {
	servers := mcpregistry.Servers()
	const deleted, deprecated = "io.github.redis/mcp-redis", "io.github.github/github-mcp-server"
	var requests atomic.Int32
	handler := mcpregistry.Handler(servers, map[string]string{deleted: "deleted", deprecated: "deprecated"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	cache := t.TempDir()
	r := registry.New(cache, []string{s.URL + "/v0.1"}, registry.Options{})
	asked, err := r.Search(t.Context(), "")
	if err != nil || len(asked.Entries) != len(servers)-1 || asked.Problems != nil {
		t.Fatalf("%d of %d: %v %v", len(asked.Entries), len(servers), asked.Problems, err)
	}
	if e, err := r.Find(t.Context(), deprecated, ""); err != nil || e.Server == nil || !e.Server.Deprecated || e.Server.Packages[0].RegistryType != "oci" {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := r.Find(t.Context(), deleted, ""); !errors.Is(err, registry.ErrDeleted) {
		t.Errorf("%v", err)
	}
	if _, err := r.Find(t.Context(), "io.github.other/dbhub", ""); err == nil || !strings.Contains(err.Error(), `did you mean "io.github.bytebase/dbhub"?`) {
		t.Errorf("%v", err)
	}
	if e, err := r.Find(t.Context(), "io.github.bytebase/dbhub", "99.0.0"); err == nil {
		t.Errorf("%+v", e)
	}
	if asked, err := r.Search(t.Context(), "pubmed"); err != nil || len(asked.Entries) != 1 || asked.Entries[0].Server == nil {
		t.Errorf("%+v %v", asked, err)
	}
	n := requests.Load()
	if _, err := r.Find(t.Context(), deprecated, ""); err != nil || requests.Load() != n {
		t.Errorf("it was asked again within an hour: %v", err)
	}
	age(t, cache, 3*time.Hour)
	s.Close()
	if e, err := r.Find(t.Context(), deprecated, ""); err != nil || e.Age.Round(time.Hour) != 3*time.Hour {
		t.Errorf("%+v %v", e, err)
	}
}

// SPEC M3: whatever a registry answers has an end, and is about what was asked for.
func TestM3MCPRegistriesThatLie(t *testing.T) {
	good := mcpregistry.Servers()[0]
	wrapped := `{"server":` + string(good) + `,"_meta":{}}`
	var name struct{ Name string }
	if err := json.Unmarshal(good, &name); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	defer close(over)
	for what, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"another server": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Replace(wrapped, name.Name, "io.github.evil/other", 1))
		}, "and answers with io.github.evil/other"},
		"a name with escapes": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Replace(wrapped, name.Name, `a\u001b[31m/b`, 1))
		}, "no valid name or version"},
		"no version": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"server":{"name":"a/b"}}`) }, "no valid name or version"},
		"no server":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }, "not in the form"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) }, "not JSON"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{`)
		}, "cut off"},
		"huge": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `"`+strings.Repeat("a", 5<<20)+`"`)
		}, "over 4194304 bytes"},
		"huge server": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"server":{"name":"a/b","version":"1","title":%q}}`, strings.Repeat("a", 300<<10))
		}, "over 262144 bytes"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:1/", http.StatusFound)
		}, "redirects to another place"},
		"round": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "redirects to another place"},
		"error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "status 418"},
		"silent": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}, "did not answer within 500ms"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "limit=1" {
				fmt.Fprint(w, `{"servers":[]}`)
				return
			}
			c.answer(w, r)
		}))
		timeout := testkit.Patience // a busy machine takes long for what is huge
		if what == "silent" {
			timeout = 500 * time.Millisecond
		}
		r := registry.New(t.TempDir(), []string{s.URL}, registry.Options{Timeout: timeout})
		if _, err := r.Find(t.Context(), name.Name, ""); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", what, err)
		}
		s.Close()
	}
	// A list without an end.
	var pages atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := pages.Add(1)
		fmt.Fprintf(w, `{"servers":[{"server":{"name":"a/b%d","version":"1"}},{"server":7}],"metadata":{"nextCursor":"%d"}}`, n, n)
	}))
	defer s.Close()
	r := registry.New(t.TempDir(), []string{s.URL}, registry.Options{})
	if asked, err := r.Search(t.Context(), ""); err != nil || len(asked.Entries) != 10 {
		t.Errorf("%d: %v", len(asked.Entries), err)
	}
	if _, err := registry.New(t.TempDir(), []string{"http://registry.example.com"}, registry.Options{}).Find(t.Context(), "a/b", ""); err == nil || !strings.Contains(err.Error(), "not encrypted") {
		t.Errorf("%v", err)
	}
}

// SPEC M3: what does not answer as an MCP registry is a git repository, and what does not answer at all is neither.
func TestM3WhichKindARegistryIs(t *testing.T) {
	for answer, want := range map[string]string{"401": "git", "404": "git", "<html>": "HEAD", `{"servers":[]}`: "no registry of packages", `{}`: "HEAD", "503": "status 503"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n, err := strconv.Atoi(answer); err == nil {
				w.WriteHeader(n)
			}
			fmt.Fprint(w, answer)
		}))
		if _, err := registry.New(t.TempDir(), []string{s.URL}, registry.Options{}).Find(t.Context(), "fs", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
		s.Close()
	}
}

// SPEC M2: whatever a registry.yaml is, it is refused or has only valid entries.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(index))
	f.Add([]byte("version: 1\ntools: [{name: a, description: b, repository: 'https://c/d'}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := registry.Parse("registry.yaml", data, "https://example.com/r", false)
		if err != nil {
			return
		}
		for _, e := range entries {
			if err := origin.CheckURL(e.Repository, false); err != nil || e.Name == "" || strings.ContainsAny(e.Description, "\x1b\n") {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}
