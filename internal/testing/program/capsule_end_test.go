package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC D3: kill -9 of Orla leaves nothing of its capsules, not what they
// started, and not what left their group.
func TestD3KilledOrlaLeavesNoCapsule(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	packs := []*pack{
		newPack(t, tools, "plain", "", map[string]string{"answer.py": says("'ok'")}),
		newPack(t, tools, "deaf", "", map[string]string{"answer.py": "import signal\nfor n in range(1, 32):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except OSError:\n        pass\n" + says("'ok'")}),
		newPack(t, tools, "parent", "", map[string]string{"answer.py": "import subprocess\nsubprocess.Popen(['sleep', '1000'])\n" + says("'ok'")}),
		newPack(t, tools, "daemon", "", map[string]string{"answer.py": leavesDaemon + says("'ok'")}),
	}
	o := serveCapsules(t, tools, "")
	for i, want := range []int{1, 1, 2, 2} {
		if got := o.mustCall(packs[i].name); got != "ok" {
			t.Errorf("%s = %q", packs[i].name, got)
		}
		testkit.Eventually(t, packs[i].name+" has all of its processes", func() bool { return len(packs[i].pids()) == want })
	}
	began := time.Now()
	o.signal(syscall.SIGKILL)
	testkit.Eventually(t, "all is gone", func() bool {
		left := 0
		for _, p := range packs {
			left += len(p.pids())
		}
		return left == 0
	})
	t.Logf("all gone %s after kill -9", time.Since(began).Round(time.Millisecond))
}

// leavesDaemon is the start of an answer.py that leaves a daemon behind: forked
// twice, in a session of its own, with nothing of its parent's open.
const leavesDaemon = `import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        os.execvp("sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
`

// SPEC H4, D11: SIGTERM ends capsules in whatever state they are, in time, and
// leaves nothing.
func TestH4SIGTERMEndsCapsulesInEveryState(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	deaf := "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
	quick := "stop_grace_ms: 300\nstartup_timeout_ms: 600000\nrestart: {initial_ms: 600000, max_ms: 600000}"
	files := func(text string) map[string]string { return map[string]string{"answer.py": text} }
	packs := []*pack{
		newPack(t, tools, "ready", quick, files(leavesDaemon+says("'ok'"))),
		newPack(t, tools, "starting", quick, files(deaf+"import time\ntime.sleep(1000)\n"+says("'ok'"))),
		newPack(t, tools, "crashed", quick, files("raise SystemExit(3)\n"+says("'ok'"))),
		newPack(t, tools, "stopped", quick+"\nstart: lazy", files(says("'ok'"))),
		// It ends neither with its stdin nor by SIGTERM, which takes its reload a while.
		newPack(t, tools, "reloading", "stop_grace_ms: 1500", files(deaf+"import atexit, time\natexit.register(time.sleep, 1000)\n"+says("'ok'"))),
	}
	o := serveCapsules(t, tools, "shutdown_grace: 1s\n")
	o.waitLog("state", is("ready", "READY"))
	o.waitLog("state", is("starting", "STARTING"))
	o.waitLog("state", is("crashed", "CRASHED"))
	o.waitLog("state", is("reloading", "READY"))
	packs[4].save("more.py", "pass\n")
	o.waitLog("state", is("reloading", "RELOADING"))
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, p := range packs {
		if left := p.pids(); len(left) > 0 {
			t.Errorf("left of %s: %v", p.name, left)
		}
		steps := o.histories()[p.name]
		if len(steps) > 0 && steps[len(steps)-1].to != "STOPPED" {
			t.Errorf("the history of %s ends with %+v", p.name, steps[len(steps)-1])
		}
	}
	o.waitLog("stopped", nil)
}

// SPEC F3: as the first process of a container, Orla reaps what capsules
// orphan, while they live and when they end.
func TestF3ReapsOrphansOfCapsulesAsPID1(t *testing.T) {
	t.Parallel()
	var enter []string
	for _, how := range [][]string{
		{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"},
		{"unshare", "--user", "--pid", "--fork", "--map-root-user", "--mount-proc", "--kill-child"},
	} {
		if exec.Command(how[0], append(how[1:], "true")...).Run() == nil {
			enter = how
			break
		}
	}
	if enter == nil {
		needs.Missing(t, "no PID namespace can be made here")
	}
	tools := t.TempDir()
	// Each call leaves an orphan that ends by itself.
	p := newPack(t, tools, "orphans", "", map[string]string{"answer.py": `import os, subprocess

offers = []


def answer(params):
    subprocess.run(["sh", "-c", "(sleep 0.01; exit 1) & (setsid sleep 0.01) & :"], stdin=subprocess.DEVNULL)
    return str(os.getpid())
`})
	argv := append(enter, checkedBinary(t), "--config", writeConfig(t, tools, ""))
	o := startCommand(t, t.TempDir(), argv...)
	serving := o.waitLog("serving", nil)
	if pid(serving) != 1 {
		t.Fatalf("Orla is process %d of its container", pid(serving))
	}
	o.url, _ = serving["url"].(string)
	for range 20 {
		o.mustCall("orphans")
	}
	inits := children(o.cmd.Process.Pid)
	if len(inits) != 1 {
		t.Fatalf("processes below unshare: %v", inits)
	}
	own := func() (running, zombies int) {
		for _, child := range children(inits[0]) {
			if alive(child) {
				running++
			} else {
				zombies++
			}
		}
		return running, zombies
	}
	testkit.Eventually(t, "every orphan is reaped", func() bool {
		running, zombies := own()
		return running <= 2 && zombies == 0 // the capsule and the guard
	})
	o.waitLog("state", is("orphans", "READY"))
	p.save("more.py", "pass\n")
	log := o.follow()
	log.next("state", is("orphans", "RELOADING"))
	log.next("state", is("orphans", "READY"))
	if err := syscall.Kill(inits[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := p.pids(); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	o.checkHistories()
}

// children lists a process's children, zombies included.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(list)) {
			if n, err := strconv.Atoi(field); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}
