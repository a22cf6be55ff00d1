package origin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// repository is a repository with a few tags, and how it is changed.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T, dir string, format ...string) *repository {
	t.Helper()
	needs.Programs(t, "git", "ssh-keygen")
	r := &repository{t, dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git(append([]string{"init", "-q", "-b", "main"}, format...)...)
	return r
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.symlinks=true"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) put(name, text string, mode os.FileMode) {
	r.t.Helper()
	put(r.t, filepath.Join(r.dir, name), text, mode)
}

// commit commits everything and returns the commit.
func (r *repository) commit() string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "x")
	return r.git("rev-parse", "HEAD")
}

func put(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// tool makes the repository of a package with the tags v1.0.0 and v1.1.0.
func tool(t *testing.T, dir string, format ...string) (r *repository, commits []string) {
	t.Helper()
	r = newRepository(t, dir, format...)
	r.put("tool.yaml", "name: fs\nversion: 1.0.0\n", 0o644)
	r.put("bin/fs", "#!/bin/sh\n", 0o755)
	if err := os.Symlink("fs", filepath.Join(dir, "bin", "again")); err != nil {
		t.Fatal(err)
	}
	commits = append(commits, r.commit())
	r.git("tag", "v1.0.0")
	r.put("tool.yaml", "name: fs\nversion: 1.1.0\n", 0o644)
	commits = append(commits, r.commit())
	r.git("tag", "-a", "-m", "x", "v1.1.0")
	return r, commits
}

// safe returns a configuration with which git serves repositories of other users.
func safe(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gitconfig")
	put(t, file, "[safe]\n\tdirectory = *\n", 0o644)
	return file
}

// smartHTTP serves the repositories of a folder by HTTP and returns their URL. change may answer instead.
func smartHTTP(t *testing.T, base string, change func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + base, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=" + safe(t), "REMOTE_USER="},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change == nil || !change(w, r) {
			h := *backend
			h.Env = append(slices.Clone(h.Env), "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// SPEC M2, M4; RFC 3, sections 4.2 and 7.1: the tree of a tag or a commit comes from a repository, by every transport,
// with what is executable, and with nothing of git in it.
func TestRFC3S4_2RepositoriesByEveryTransport(t *testing.T) {
	needs.Time(t, "runs git by every transport")
	base := t.TempDir()
	r, commits := tool(t, filepath.Join(base, "fs"))
	for _, remote := range []string{testkit.GitDaemon(t, base, "GIT_CONFIG_GLOBAL="+safe(t)) + "/fs", smartHTTP(t, base, nil) + "/fs/.git", "file://" + r.dir} {
		g := origin.Git{Local: true}
		tags, _, err := g.Tags(t.Context(), remote)
		if err != nil || !slices.Equal(tags, []string{"v1.0.0", "v1.1.0"}) {
			t.Fatalf("%s: %v %v", remote, tags, err)
		}
		for ref, want := range map[string]origin.Tree{
			"v1.0.0":   {Commit: commits[0], Tag: "v1.0.0"},
			"v1.1.0":   {Commit: commits[1], Tag: "v1.1.0"},
			commits[0]: {Commit: commits[0]},
			"HEAD":     {Commit: commits[1]},
		} {
			if ref != "v1.1.0" && !strings.HasPrefix(remote, "git:") {
				continue
			}
			into := filepath.Join(t.TempDir(), "new")
			got, err := g.Fetch(t.Context(), remote, ref, into, nil)
			if err != nil || got != want {
				t.Fatalf("%s %s: %+v %v", remote, ref, got, err)
			}
			if info, err := os.Stat(filepath.Join(into, "bin", "fs")); err != nil || info.Mode() != 0o755 {
				t.Errorf("bin/fs: %v %v", info, err)
			}
			if info, err := os.Stat(filepath.Join(into, "tool.yaml")); err != nil || info.Mode() != 0o644 {
				t.Errorf("tool.yaml: %v %v", info, err)
			}
			if target, err := os.Readlink(filepath.Join(into, "bin", "again")); err != nil || target != "fs" {
				t.Errorf("the link: %q %v", target, err)
			}
			if names, err := os.ReadDir(into); err != nil || len(names) != 2 {
				t.Errorf("%v %v", names, err)
			}
		}
	}
}

// SPEC M4: a repository of SHA-256 works as well.
func TestM4RepositoryOfSHA256(t *testing.T) {
	r, commits := tool(t, filepath.Join(t.TempDir(), "fs"), "--object-format=sha256")
	into := t.TempDir()
	if tree, err := (origin.Git{Local: true}).Fetch(t.Context(), "file://"+r.dir, "v1.1.0", into, nil); err != nil || tree.Commit != commits[1] {
		t.Errorf("%+v %v", tree, err)
	}
}

// RFC 3, section 7.3: tags are versions if they begin with v and follow SemVer. The highest stable one is the latest.
func TestRFC3S7_3TagsAndLatest(t *testing.T) {
	r := newRepository(t, t.TempDir())
	r.commit()
	for _, tag := range []string{"v1.9.0", "v1.10.0", "v2.0.0-rc.1", "1.0.0", "v3", "v3.1", "v1.10.0+build.5", "vx", "release", "v01.0.0"} {
		r.git("tag", tag)
	}
	tags, others, err := (origin.Git{Local: true}).Tags(t.Context(), "file://"+r.dir)
	if err != nil || len(tags) != 4 || tags[0] != "v1.9.0" || tags[3] != "v2.0.0-rc.1" || !slices.Contains(tags, "v1.10.0+build.5") {
		t.Errorf("%v %v", tags, err)
	}
	if !slices.Equal(others, []string{"1.0.0", "release", "v01.0.0"}) {
		t.Errorf("the others are %v", others)
	}
	for want, of := range map[string][]string{
		"v1.10.0":    {"v1.9.0", "v1.10.0", "v2.0.0-rc.1"},
		"v2.0.0-b.2": {"v2.0.0-b.1", "v2.0.0-b.2", "v1.0.0-z"},
		"":           nil,
	} {
		if got := origin.Latest(of); got != want {
			t.Errorf("%v: %q", of, got)
		}
	}
}

// SPEC M4: what is not the name of a repository, a tag or a commit never reaches git.
func TestM4AddressesAndRefs(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://example.com/a/b":             true,
		"https://example.com:8443/a.git":      true,
		"ssh://git@example.com/a":             true,
		"git@example.com:a/b.git":             true,
		"http://127.0.0.1:80/a":               true,
		"http://[::1]/a":                      true,
		"git://localhost/a":                   true,
		"http://example.com/a":                false,
		"git://example.com/a":                 false,
		"http://127.0.0.1.example.com/a":      false,
		"file:///a":                           false,
		"/a":                                  false,
		"./a":                                 false,
		"ext::sh -c id":                       false,
		"ext::sh%20-c":                        false,
		"ext://x/y":                           false,
		"--upload-pack=touch x":               false,
		"-oProxyCommand=x:y":                  false,
		"git@-oProxyCommand=x:y":              false,
		"ssh://-oProxyCommand=x/y":            false,
		"ssh://-oProxyCommand=x@example/y":    false,
		"ssh://example.com/-y":                false,
		"git@example.com:-y":                  false,
		"git@example.com::y":                  false,
		"https://user:secret@example.com/a":   false,
		"https://token@example.com/a":         false,
		"https://example.com/a?x=1":           false,
		"https://example.com/a\nb":            false,
		"https:///a":                          false,
		"ssh://a_b-c.d@a-b_c.example.com/a":   true,
		"ssh://[fe80::1%25lo]/a":              true,
		"https://xn--gthub-n4a.com/a":         true,
		"https://g\u0456thub.com/a":           false, // it looks like another
		"ssh://a;id/a":                        false,
		"ssh://a&id&/a":                       false,
		"ssh://a'b/a":                         false,
		"ssh://a(b)/a":                        false,
		"ssh://u$(id)@example.com/a":          false,
		"ssh://u%24(id)@example.com/a":        false,
		"":                                    false,
		"https://" + strings.Repeat("a", 3e3): false,
	} {
		if err := origin.CheckURL(text, false); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		} else if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error has the password: %v", text, err)
		}
	}
	for _, ref := range []string{"", "-v1", "--upload-pack=x", "a..b", "a b", "v1.lock", "v1.", "a//b", "/a", "a/", "refs/heads/x:y", "a^{}", "a@{1}", "a\n", "deadbeef:x", "*", "v1~1"} {
		_, err := (origin.Git{}).Fetch(t.Context(), "https://127.0.0.1:1/x", ref, t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), "neither the name of a tag nor") {
			t.Errorf("%q: %v", ref, err)
		}
	}
	for text, want := range map[string]bool{"http://127.0.0.1/a": true, "git@localhost:a": true, "file:///a": true, "https://example.com/a": false, "git@example.com:a": false} {
		if got := origin.OnThisMachine(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if got := origin.MayBeThisMachine(text); got != want {
			t.Errorf("%s may be this machine: %v", text, got)
		}
	}
	// Other spellings, by which it is reached too, but which permit nothing.
	for _, text := range []string{
		"https://0.0.0.0/x.git", "https://[::]/x.git", "https://127.1/x.git", "https://2130706433/x.git", "https://0x7f.1/x.git", "https://0177.0.0.1/x.git", "https://127.0.0.1./x",
		"https://localhost./x.git", "https://LocalHost.LocalDomain/x", "https://a.localhost:443/x", "https://ip6-localhost/x", "ssh://0/x.git", "ssh://git@127.1:22/x", "git@0:x", "git@localhost.:x", "0:x",
		"https://[::ffff:0.0.0.0]/x", "https://[::ffff:127.0.0.1]/x", "https://[::1%25lo]/x", "https://[fe80::1%25lo]/x", "https://169.254.169.254/x", "https://[::7f00:1]/x",
	} {
		if !origin.MayBeThisMachine(text) {
			t.Errorf("%s is not seen as this machine", text)
		}
	}
	for _, text := range []string{"https://example.com/0", "https://203.0.113.7/x", "git@example.com:0", "https://localhost.example.com/x", "https://1a.example/x", "https://[2001:db8::1]/x"} {
		if origin.MayBeThisMachine(text) {
			t.Errorf("%s is seen as this machine", text)
		}
	}
	for _, text := range []string{"http://0.0.0.0/x", "http://a.localhost/x", "http://127.1/x"} {
		if origin.CheckURL(text, false) == nil {
			t.Errorf("%s is accepted without encryption", text)
		}
	}
}

// SPEC M4, M5: a server that says one thing and sends another is refused, and so are missing tags, redirects, and
// what is not a repository.
func TestM4RepositoriesThatLie(t *testing.T) {
	needs.Time(t, "runs git many times")
	base := t.TempDir()
	r, commits := tool(t, filepath.Join(base, "fs"))
	honest := smartHTTP(t, base, nil)
	for name, c := range map[string]struct {
		change func(http.ResponseWriter, *http.Request) bool
		ref    string
		want   string
	}{
		"no tag":    {nil, "v9.0.0", "no such tag"},
		"no commit": {nil, strings.Repeat("a", 40), "no such tag or commit"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, honest+r.URL.RequestURI(), http.StatusFound)
			return true
		}, "v1.0.0", "git ls-remote failed"},
		"page": {func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "<html>\x1b[31m hello")
			return true
		}, "v1.0.0", "no such tag"},
		"login": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, "v1.0.0", "git ls-remote failed"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			for range 1 << 10 {
				if _, err := io.WriteString(w, strings.Repeat("fff0"+strings.Repeat("a", 0xfff0-4), 16)); err != nil {
					break
				}
			}
			return true
		}, "v1.0.0", "git ls-remote failed"},
	} {
		url := smartHTTP(t, base, c.change) + "/fs/.git"
		into := t.TempDir()
		_, err := (origin.Git{Timeout: 20 * time.Second}).Fetch(t.Context(), url, c.ref, into, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := os.ReadDir(into); err != nil || len(names) != 0 {
			t.Errorf("%s: it left %v (%v)", name, names, err)
		}
	}
	// The tag moves between the question and the fetch.
	asked := 0
	url := smartHTTP(t, base, func(_ http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodGet {
			if asked++; asked == 2 {
				r.git("tag", "-f", "v1.0.0", commits[1])
			}
		}
		return false
	}) + "/fs/.git"
	if _, err := (origin.Git{}).Fetch(t.Context(), url, "v1.0.0", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "the repository said that v1.0.0 is "+commits[0]+", and sent "+commits[1]) {
		t.Errorf("a tag that moves: %v", err)
	}
}

// SPEC M4: git ends with the context and at the time limit, and a repository that is larger than it may be is not
// fetched to its end.
func TestM4FetchesHaveAnEnd(t *testing.T) {
	base := t.TempDir()
	tool(t, filepath.Join(base, "fs"))
	begun, over := make(chan struct{}, 10), make(chan struct{})
	slow := smartHTTP(t, base, func(_ http.ResponseWriter, r *http.Request) bool {
		begun <- struct{}{}
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	}) + "/fs/.git"
	defer close(over)
	if _, _, err := (origin.Git{Timeout: 200 * time.Millisecond}).Tags(t.Context(), slow); err == nil || !strings.Contains(err.Error(), "did not finish within 200ms") {
		t.Errorf("%v", err)
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := (origin.Git{}).Fetch(ctx, slow, "v1.0.0", t.TempDir(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}

	// A server that sends an object without an end.
	sent := make(chan int, 1)
	endless := smartHTTP(t, base, func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil || !bytes.Contains(body, []byte("command=fetch")) {
			return false
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		fmt.Fprintf(w, "%04xpackfile\n", 13)
		// A pack with one blob of 2^40 bytes, in blocks that are not compressed.
		pack := append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), 0xb0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0x78, 0x01)
		block := append([]byte{0, 0, 0x80, 0xff, 0x7f}, make([]byte, 0x8000)...)
		n := 0
		for ; n < 1<<30; n += len(block) {
			if _, err := fmt.Fprintf(w, "%04x\x01%s", 5+len(pack), pack); err != nil {
				break
			}
			pack = block
		}
		sent <- n
		return true
	}) + "/fs/.git"
	small := origin.Git{Limits: origin.Limits{Bytes: 1 << 20, Files: 100}}
	if _, err := small.Fetch(t.Context(), endless, "v1.0.0", t.TempDir(), nil); !errors.Is(err, origin.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if n := <-sent; n >= 1<<30 {
		t.Errorf("it took all %d bytes", n)
	}
	// Few bytes on the way, and more in the tree.
	big := newRepository(t, filepath.Join(base, "big"))
	big.put("zeros", string(make([]byte, 2<<20)), 0o644)
	big.commit()
	big.git("tag", "v1.0.0")
	if _, err := small.Fetch(t.Context(), smartHTTP(t, base, nil)+"/big/.git", "v1.0.0", t.TempDir(), nil); !errors.Is(err, origin.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// SPEC M4: nothing that a repository brings runs, and nothing of git in it counts: no hook, filter, attribute or
// configuration of the folder in which Orla runs.
func TestM4NothingOfARepositoryRuns(t *testing.T) {
	base := t.TempDir()
	ran := filepath.Join(t.TempDir(), "ran")
	r := newRepository(t, filepath.Join(base, "fs"))
	r.put(".gitattributes", "* filter=evil diff=evil merge=evil export-subst text eol=crlf\nhidden export-ignore\n", 0o644)
	r.put("hidden", "$Format:%H$\nline\n", 0o644)
	r.put(".lfsconfig", "x", 0o644)
	r.commit()
	r.git("tag", "v1.0.0")
	for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change"} {
		put(t, filepath.Join(r.dir, ".git", "hooks", hook), "#!/bin/sh\ntouch "+ran+"\n", 0o755)
	}
	// The configuration of the folder in which Orla is started, and of the user.
	here := newRepository(t, t.TempDir())
	for _, key := range []string{"core.sshCommand", "core.askPass", "core.fsmonitor", "filter.evil.smudge", "credential.helper", "core.gitProxy"} {
		here.git("config", key, "touch "+ran)
	}
	here.git("config", "url.file:///nowhere.insteadOf", "git://")
	url := testkit.GitDaemon(t, base, "GIT_CONFIG_GLOBAL="+safe(t))
	home := t.TempDir()
	put(t, filepath.Join(home, ".gitconfig"), "[url \"file:///nowhere\"]\n\tinsteadOf = git://\n[core]\n\thooksPath = "+filepath.Join(r.dir, ".git", "hooks")+"\n", 0o644)
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", filepath.Join(here.dir, ".git"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.sshCommand")
	t.Setenv("GIT_CONFIG_VALUE_0", "touch "+ran)
	t.Setenv("GIT_SSH_COMMAND", "touch "+ran)
	t.Chdir(here.dir)
	into := t.TempDir()
	if _, err := (origin.Git{}).Fetch(t.Context(), url+"/fs", "v1.0.0", into, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, into, "hidden"); got != "$Format:%H$\nline\n" {
		t.Errorf("the file is %q", got)
	}
	if _, _, err := (origin.Git{Timeout: 5 * time.Second}).Tags(t.Context(), "ssh://127.0.0.1:1/x"); err == nil {
		t.Error("ssh: no error")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("something ran")
	}
}

// SPEC M4: trees that no honest git makes are refused before anything is written.
func TestM4HostileTrees(t *testing.T) {
	needs.Time(t, "runs git many times")
	base := t.TempDir()
	r := newRepository(t, filepath.Join(base, "fs"))
	blob := func(text string) string {
		put(t, filepath.Join(r.dir, "x"), text, 0o644)
		return r.git("hash-object", "-w", "x")
	}
	tree := func(list ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", "mktree", "--missing")
		cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(strings.Join(list, "\n")+"\n")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	text := blob("x")
	out, chain := blob("../x"), blob("d/up/../../x")
	root := blob("..")
	bomb := tree("100644 blob " + text + "\ta")
	for range 30 { // unfolds to more than could ever be listed
		bomb = tree("040000 tree "+bomb+"\ta", "040000 tree "+bomb+"\tb", "040000 tree "+bomb+"\tc")
	}
	for name, c := range map[string]struct{ tree, want string }{
		"link out":   {tree("120000 blob " + out + "\tl"), "leads out of the package"},
		"link chain": {tree("040000 tree "+tree("120000 blob "+root+"\tup")+"\td", "120000 blob "+chain+"\tl"), "leads out of the package"},
		"submodule":  {tree("160000 commit " + strings.Repeat("1", 40) + "\ts"), "submodule"},
		"twins":      {tree("100644 blob "+text+"\tA", "100644 blob "+text+"\ta"), "only in case"},
		"git folder": {tree("040000 tree " + bomb + "\t.GIT"), "git"},
		"record":     {tree("100644 blob " + text + "\t.orla-package.json"), "notes what it installed"},
		"escape":     {tree("100644 blob " + text + "\ta\x1bb"), "characters that are not allowed"},
		"bomb":       {bomb, "over 20000 files"},
	} {
		commit := r.git("commit-tree", "-m", "x", c.tree)
		r.git("tag", "-f", "v1.0.0", commit)
		into := t.TempDir()
		_, err := (origin.Git{Local: true}).Fetch(t.Context(), "file://"+r.dir, "v1.0.0", into, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := os.ReadDir(into); err != nil || len(names) != 0 {
			t.Errorf("%s: it left %v (%v)", name, names, err)
		}
	}
}

// SPEC M6: the signature of a tag is checked, and its signer is known. A tag that is not signed by one of the
// signers, that was signed under another name, or whose signature is wrong is refused.
func TestM6SignedTags(t *testing.T) {
	needs.Time(t, "runs git many times")
	base := t.TempDir()
	r, commits := tool(t, filepath.Join(base, "fs"))
	keys := t.TempDir()
	key := func(name string, args ...string) (file, public string) {
		file = filepath.Join(keys, name)
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", append([]string{"-q", "-N", "", "-f", file, "-C", "a comment"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return file, strings.TrimSpace(read(t, file+".pub"))
	}
	mine, public := key("mine", "-t", "ed25519")
	other, otherPublic := key("other", "-t", "ecdsa")
	sign := func(tag, with string) {
		r.git("-c", "gpg.format=ssh", "-c", "user.signingKey="+with, "tag", "-f", "-s", "-m", "signed", tag)
	}
	sign("v2.0.0", mine)
	sign("v2.1.0", other)
	signed := r.git("cat-file", "tag", "v2.0.0")
	raw := func(text string) string {
		put(t, filepath.Join(keys, "tag"), text+"\n", 0o644)
		return r.git("hash-object", "-t", "tag", "-w", "--literally", filepath.Join(keys, "tag"))
	}
	r.git("update-ref", "refs/tags/v2.2.0", r.git("rev-parse", "v2.0.0"))
	r.git("update-ref", "refs/tags/v2.3.0", raw(strings.ReplaceAll(strings.Replace(signed, "\nsigned\n", "\nevil\n", 1), "tag v2.0.0", "tag v2.3.0")))
	r.git("update-ref", "refs/tags/v2.4.0", raw(strings.ReplaceAll(strings.Replace(signed, "\nsigned\n", "\nevil\n", 1), "tag v2.0.0", "tag v2.4.0")+"\n-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----"))
	want, err := origin.ParseSigner(public)
	if err != nil {
		t.Fatal(err)
	}
	if printed, err := exec.CommandContext(t.Context(), "ssh-keygen", "-lf", mine+".pub").Output(); err != nil || !strings.Contains(string(printed), origin.Fingerprint(want)+" ") {
		t.Errorf("the fingerprint is %s, and not %s (%v)", origin.Fingerprint(want), printed, err)
	}
	for _, c := range []struct {
		ref     string
		signers []string
		signer  string
		want    string
	}{
		{"v2.0.0", nil, want, ""},
		{"v2.0.0", []string{otherPublic, public}, want, ""},
		{"v2.1.0", []string{public}, "", "it is signed by SHA256:"},
		{"v1.1.0", []string{public}, "", "no SSH signature"},
		{"v1.0.0", []string{public}, "", "no signature"},
		{"v1.1.0", nil, "", ""},
		{commits[0], []string{public}, "", "only tags can be signed"},
		{"HEAD", []string{public}, "", "only tags can be signed"},
		{"v2.2.0", nil, "", "under another name"},
		{"v2.3.0", nil, "", "signature of the tag is wrong"},
		{"v2.4.0", nil, "", "signature of the tag is wrong"},
		{"v2.0.0", []string{"ssh-ed25519 x"}, "", "a signer is an SSH public key"},
		{"v2.0.0", []string{"ssh-ed25519-cert-v01@openssh.com AAAA"}, "", "a signer is an SSH public key"},
	} {
		tree, err := (origin.Git{Local: true}).Fetch(t.Context(), "file://"+r.dir, c.ref, t.TempDir(), c.signers)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || tree.Signer != c.signer {
			t.Errorf("%s with %d signers: %+v %v", c.ref, len(c.signers), tree, err)
		}
	}
}
