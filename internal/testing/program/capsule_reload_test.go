package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// patient lets calls wait for a start that a busy machine takes its time for.
const patient = "queue_timeout: 30s\n"

// SPEC E1, L3: many saves, which make long has fifty of, while eight sessions call lose no
// call and no session, and who calls after READY is answered by the new code.
func TestE1SavesUnderLoadLoseNoCall(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for many reloads")
	const parts, clients = 8, 8 // over 10 reloads a minute by one file would suspend watching (E3)
	saves := 16
	if needs.More() {
		saves = 50
	}
	tools := t.TempDir()
	files := map[string]string{}
	var names []string
	for i := range parts {
		name := fmt.Sprintf("part%d", i)
		files[name+".py"] = "V = 0\n"
		names = append(names, name)
	}
	list := strings.Join(names, ", ")
	files["answer.py"] = "import " + list + "\n" + says("str(max(part.V for part in ("+list+")))")
	p := newPack(t, tools, "live", "", files)
	o := serveCapsules(t, tools, patient)
	log := o.follow()
	log.next("state", is("live", "READY"))

	callers := o.foreign("live")
	for len(callers) < clients {
		callers = append(callers, o.session("live"))
	}
	var live atomic.Int64 // the newest save whose process was READY
	load, stop := press(t, atLeast(callers, &live), lossless)
	for i := 1; i <= saves; i++ {
		file := fmt.Sprintf("part%d.py", i%parts)
		p.save(file, fmt.Sprintf("V = %d\n", i))
		log.next("state", is("live", "RELOADING", file))
		log.next("state", is("live", "READY"))
		live.Store(int64(i))
	}
	stop()
	t.Logf("%d calls over %d saves by %d clients, %d failed", load.calls.Load(), saves, len(callers), load.failed.Load())
	if load.calls.Load() < int64(saves) {
		t.Errorf("only %d calls were made", load.calls.Load())
	}
	if n := o.count("state", is("live", "RELOADING")); n != saves {
		t.Errorf("%d reloads for %d saves", n, saves)
	}
}

// atLeast turns an answer by older code than live into an error.
func atLeast(callers []caller, live *atomic.Int64) []caller {
	var all []caller
	for _, call := range callers {
		all = append(all, func() (string, error) {
			want := live.Load()
			text, err := call()
			if err != nil {
				return "", err
			}
			if got, err := strconv.ParseInt(text, 10, 64); err != nil || got < want {
				return "", fmt.Errorf("answered by the code of save %q, after that of save %d was READY", text, want)
			}
			return text, nil
		})
	}
	return all
}

// SPEC E3: a checkout of 300 files is one reload, and loses no call.
func TestE3GitCheckoutIsOneReload(t *testing.T) {
	t.Parallel() // it waits for silence
	needs.Time(t, "waits for silence after each checkout")
	needs.Programs(t, "git")
	const files, rounds = 300, 4
	tools := t.TempDir()
	// A git that has to wait for a busy machine must not look like two.
	p := newPack(t, tools, "tree", "hot_load: {debounce_ms: 2000}", map[string]string{
		"answer.py": "branch = open('branch').read()\n" + says("branch"), "branch": "none",
	})
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "gc.auto=0"}, args...)...)
		cmd.Dir = p.dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "one")
	for _, branch := range []string{"one", "two"} {
		if branch == "two" {
			git("checkout", "-q", "-b", branch)
		}
		for i := range files {
			path := filepath.Join(p.dir, "src", fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d.txt", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(branch), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p.save("branch", branch)
		git("add", "-A")
		git("commit", "-q", "-m", branch)
	}
	o := serveCapsules(t, tools, patient)
	log := o.follow()
	log.next("state", is("tree", "READY"))
	load, stop := press(t, []caller{o.session("tree"), o.plain("tree")}, lossless)
	for i := range rounds {
		branch := []string{"one", "two"}[i%2]
		git("checkout", "-q", branch)
		log.next("state", is("tree", "RELOADING"))
		log.next("state", is("tree", "READY"))
		if got := o.mustCall("tree"); got != branch {
			t.Errorf("on branch %s the capsule has read %q", branch, got)
		}
	}
	// One more, which a straggler of the last checkout would be counted before.
	p.save("branch", "three")
	log.next("state", is("tree", "RELOADING", "branch changed"))
	log.next("state", is("tree", "READY"))
	stop()
	if n := o.count("started", nil) - 1; n != rounds+1 {
		t.Errorf("%d reloads for %d checkouts and a save", n, rounds)
	}
	t.Logf("%d calls meanwhile", load.calls.Load())
}

// SPEC H2, H3: what changes elsewhere leaves a capsule its process, and a
// changed manifest gives it a new one; no call is lost either way.
func TestH2AnUnchangedCapsuleKeepsItsProcess(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	newPack(t, tools, "kept", "", map[string]string{"answer.py": says("str(os.getpid())")})
	changing := newPack(t, tools, "changing", "", map[string]string{"answer.py": says("os.environ.get('WORD', 'none')")})
	o := serveCapsules(t, tools, patient)
	log := o.follow()
	kept := o.mustCall("kept")
	o.mustCall("changing")

	keeps, stopKeeps := press(t, []caller{o.session("kept")}, func(_ time.Time, text string, err error) error {
		if err != nil || text != kept {
			return fmt.Errorf("kept: process %q, error %v; want process %s", text, err, kept)
		}
		return nil
	})
	changes, stopChanges := press(t, []caller{o.session("changing"), o.plain("changing")}, lossless)

	o.signal(syscall.SIGHUP)
	log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" && l["kept"] == 2.0 })
	other := testkit.WriteTool(t, tools, "other.sh", "#!/bin/sh\necho 1\n")
	log.next("reload", func(l map[string]any) bool { return l["added"] == 1.0 })
	testkit.WriteTool(t, tools, "other.sh", "#!/bin/sh\n# /// tool\n# description: x\n# ///\necho 2\n")
	log.next("reload", func(l map[string]any) bool { return l["changed"] == 1.0 })
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	log.next("reload", func(l map[string]any) bool { return l["removed"] == 1.0 })

	for i := range 5 {
		word := fmt.Sprintf("word%d", i)
		changing.manifest("args: ["+word+"]\ntimeout: 9s", "mcp: {input_schema: {type: object}, title: "+word+"}")
		log.next("reload", func(l map[string]any) bool { return l["changed"] == 1.0 })
		log.next("state", is("changing", "READY"))
	}

	// A manifest that is broken for a while takes nothing away.
	before := changing.pids()
	changing.manifest("tiemout: 5s", "")
	log.next("a capsule's manifest has errors; the capsule goes on unchanged", func(l map[string]any) bool {
		return strings.Contains(fmt.Sprint(l["err"]), "tiemout")
	})
	o.mustCall("changing")
	if now := changing.pids(); len(before) != 1 || len(now) != 1 || now[0] != before[0] {
		t.Errorf("processes %v before, %v with a broken manifest", before, now)
	}
	changing.manifest("args: [mended]", "mcp: {input_schema: {type: object}}")
	log.next("reload", func(l map[string]any) bool { return l["changed"] == 1.0 })
	log.next("state", is("changing", "READY"))
	stopChanges()
	t.Logf("%d calls of the capsule that changes, %d of the other", changes.calls.Load(), keeps.calls.Load())

	if err := os.RemoveAll(changing.dir); err != nil {
		t.Fatal(err)
	}
	log.next("state", is("changing", "STOPPED", "it is not among the tools any more"))
	o.waitLog("state", is("changing", "STOPPED", "its description has changed"))
	if a, err := o.call("changing", "{}"); err != nil || a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("a removed capsule answers %+v, %v", a, err)
	}
	if left := changing.pids(); len(left) > 0 {
		t.Errorf("processes of the removed capsule: %v", left)
	}
	stopKeeps()
	if n := len(o.histories()["kept"]); n != 2 {
		t.Errorf("the unchanged capsule has %d lines of history; want 2: %+v", n, o.histories()["kept"])
	}
}

// SPEC E1, H2: calls that wait while their capsule's manifest changes are
// answered by the process that comes of it.
func TestH2CallsThatWaitOutliveAChangedManifest(t *testing.T) {
	t.Parallel()
	tools, gate := t.TempDir(), filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPack(t, tools, "slow", "startup_timeout_ms: 60000", map[string]string{
		"answer.py": fmt.Sprintf("import sys\nif 'quick' not in sys.argv:\n    open(%q).read()\n", gate) + says("'after the change'"),
	})
	o := serveCapsules(t, tools, patient)
	log := o.follow()
	log.next("started", nil)
	answers := make(chan error, 20)
	call := o.plain("slow")
	for range cap(answers) {
		go func() {
			text, err := call()
			if err == nil && text != "after the change" {
				err = fmt.Errorf("answer %q", text)
			}
			answers <- err
		}()
	}
	testkit.Eventually(t, "the calls wait", func() bool {
		o.signal(syscall.SIGUSR1)
		return o.count("capsule", func(l map[string]any) bool { return l["waiting"] == float64(cap(answers)) }) > 0
	})
	p.manifest("args: [quick]", "mcp: {input_schema: {type: object}}")
	log.next("state", is("slow", "READY"))
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// SPEC E4, D10: a version that does not start is told with its stderr, stays
// listed, and is mended by the next save, without a pause.
func TestE4AVersionThatDoesNotStart(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	good := says("'fine'")
	p := newPack(t, tools, "frail", "restart: {initial_ms: 600000, max_ms: 600000}", map[string]string{"answer.py": good})
	o := serveCapsules(t, tools, "")
	log := o.follow()
	log.next("state", is("frail", "READY"))
	for i := range 3 {
		broken := fmt.Sprintf("raise RuntimeError('the %dth mistake')\n", i)
		p.save("answer.py", broken+good)
		log.next("state", is("frail", "RELOADING", "answer.py changed"))
		said := *log // what it says may be read a moment after its end
		said.next("stderr", func(l map[string]any) bool {
			return l["tool"] == "frail" && l["stream"] == "stderr" && strings.Contains(fmt.Sprint(l["text"]), fmt.Sprintf("the %dth mistake", i))
		})
		log.next("state", func(l map[string]any) bool {
			next, _ := l["next_start_ms"].(float64)
			return is("frail", "CRASHED", "exited with code 1")(l) && next >= 590_000
		})
		a, err := o.call("frail", "{}")
		if err != nil || a.Result == nil || !a.Result.IsError {
			t.Fatalf("a call of the broken version: %+v, %v", a, err)
		}
		text := a.Result.Content[0].Text
		for _, part := range []string{"frail is CRASHED", "exited with code 1", "next start is due in", fmt.Sprintf("the %dth mistake", i)} {
			if !strings.Contains(text, part) {
				t.Errorf("the error has no %q: %s", part, text)
			}
		}
		if a.Result.Meta["retryable"] != true {
			t.Errorf("_meta = %v", a.Result.Meta)
		}
		if names := o.names(); names != "frail" {
			t.Errorf("tools/list = %q", names)
		}
		p.save("answer.py", good)
		log.next("state", is("frail", "READY"))
		if got := o.mustCall("frail"); got != "fine" {
			t.Errorf("mended, it answers %q", got)
		}
	}
}

// names lists the tools, as a client without a session sees them.
func (o *running) names() string {
	o.t.Helper()
	a, err := o.post("tools/list", "{}")
	if err != nil || a.Result == nil {
		o.t.Fatalf("tools/list: %+v, %v", a, err)
	}
	var names []string
	for _, tool := range a.Result.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}
