package program

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// holding serves the repositories of a folder by HTTP. Each request for the content of one is announced, and answered when it is
// told to go on.
func holding(t *testing.T, folder string) (url string, asked, goOn chan bool) {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("[safe]\n\tdirectory = *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked, goOn = make(chan bool), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		backend := cgi.Handler{
			Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
			Env:  []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=" + config, "REMOTE_USER=", "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol")},
		}
		if r.Method == http.MethodPost {
			select {
			case asked <- true:
			case <-r.Context().Done():
				return
			}
			select {
			case <-goOn:
			case <-r.Context().Done():
				return
			}
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked, goOn
}

// slowCapsule starts when somebody has written to the pipe GATE.
func slowCapsule(gate, says string) string {
	waits := strings.NewReplacer("#!/bin/sh\n", "#!/bin/sh\ncat '"+gate+"' >/dev/null\n", `"name":"say","version":"VERSION"`, `"name":"slow","version":"1.0.0"`, "VERSION", says)
	return waits.Replace(shCapsule)
}

// SPEC M8: a package is fetched until a reload is in the middle: a capsule is being reloaded, and another change of the folder has
// been applied. It is installed then, and served before that capsule is READY. No call of either is lost.
func TestM8AnInstallThatEndsDuringAReload(t *testing.T) {
	needs.Time(t, "starts the program")
	t.Parallel()
	needs.Programs(t, "git")
	i := newInstallable(t)
	folder := t.TempDir()
	i.src = filepath.Join(folder, "say")
	url, asked, goOn := holding(t, folder)
	publish := func(version string) {
		i.version(version, shCapsule, aCapsule)
		for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-qm", version}, {"tag", "v" + version}} {
			cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
			cmd.Dir, cmd.Env = i.src, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v %s", args, err, out)
			}
		}
	}
	type result struct {
		out string
		err error
	}
	installed := make(chan result, 1)
	install := func(version string) {
		out, err := i.orla("install", url+"/say/.git@v"+version)
		installed <- result{out, err}
	}
	next := func() (r result, over bool) { // waits for a request, or the end of the install
		select {
		case <-asked:
			return result{}, false
		case r = <-installed:
			return r, true
		}
	}
	goesOn := func() { // answers requests until the end of the install
		for over := false; !over; {
			goOn <- true
			var r result
			if r, over = next(); r.err != nil {
				t.Fatalf("%v %s", r.err, r.out)
			}
		}
	}
	begins := func(version string) { // lets an install begin, up to its first request
		publish(version)
		go install(version)
		if r, over := next(); over {
			t.Fatalf("nobody was asked: %v %s", r.err, r.out)
		}
	}
	begins("1.0.0")
	goesOn()
	gate, slow := filepath.Join(t.TempDir(), "gate"), filepath.Join(i.dir, "tools", "slow")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() {
		if err := os.WriteFile(gate, []byte("x"), 0); err != nil {
			t.Error(err)
		}
	}
	i.write(slow, "tool.yaml", "name: slow\nversion: 1.0.0\ndescription: x\nentrypoint: run\nmcp: {input_schema: {}}\nruntime: {mode: capsule, startup_timeout_ms: 60000, hot_load: {watch: [./run], debounce_ms: 10}}\n")
	i.write(slow, "run", slowCapsule(gate, "first"))
	o := i.serve()
	log := o.follow()
	open()
	log.next("state", is("slow", "READY"))

	pressed, stop := press(t, []caller{o.plain("say"), o.session("say"), o.session("slow")}, lossless)
	begins("1.1.0")
	i.write(slow, "run", slowCapsule(gate, "second"))
	log.next("state", is("slow", "STARTING"))
	i.write(filepath.Join(i.dir, "tools"), "more.sh", "#!/bin/sh\necho more\n")
	o.waitListed("more")
	if got := o.mustCall("say"); got != "1.0.0" {
		t.Errorf("before the install it says %q", got)
	}
	goesOn()
	if got := o.mustCall("say"); got != "1.1.0" {
		t.Errorf("after the install it says %q", got)
	}
	if s := o.toolStatus("slow"); fmt.Sprint(s.State) != "STARTING" {
		t.Errorf("slow is %s: this test proves nothing", s.State)
	}
	open()
	log.next("state", is("slow", "READY"))
	if got := o.mustCall("slow"); got != "second" {
		t.Errorf("after the reload slow says %q", got)
	}
	stop()
	if pressed.calls.Load() < 10 {
		t.Errorf("only %d calls were made", pressed.calls.Load())
	}
	if n := o.count("reload", func(l map[string]any) bool { return l["removed"] != 0.0 || l["failed"] != 0.0 }); n > 0 {
		t.Errorf("%d reloads have removed something", n)
	}
}
