package program

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC O5: orla top in a real terminal: it shows what happens, and its keys operate capsules.
func TestO5TopInATerminal(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	newPack(t, tools, "notes", "", map[string]string{"main.sh": "#!/bin/sh\necho it begins >&2\nprintf '{\"jsonrpc\":\"2.0\",\"method\":\"orla.hello\",\"params\":{\"name\":\"notes\",\"version\":\"1.0.0\",\"capabilities\":[]}}\\n'\ncat >/dev/null\n"})
	if err := os.WriteFile(filepath.Join(tools, "notes", "tool.yaml"), []byte("name: notes\nversion: 1.0.0\ndescription: d\nentrypoint: main.sh\nruntime: {mode: capsule}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := serveCapsules(t, tools, "")
	tmux, shows := topIn(t, o, tools)
	has := func(parts ...string) func(string) bool {
		return func(screen string) bool {
			for _, p := range parts {
				if !strings.Contains(screen, p) {
					return false
				}
			}
			return true
		}
	}
	shows("the capsule", has("> notes", "READY", "1 tool: 1 READY", "q quit"))
	tmux("send-keys", "r")
	shows("the restart", has("notes: READY"))
	tmux("send-keys", "l")
	shows("its log", has("log of notes", "notes | it begins"))
	tmux("send-keys", "q")
	shows("the table", has("> notes"))
	tmux("send-keys", "x")
	shows("the question", has("stop notes until"))
	tmux("send-keys", "y")
	shows("that it is stopped", has("STOPPED", "1 STOPPED"))
	tmux("send-keys", "s")
	shows("that it is started", has("1 READY"))
	tmux("resize-window", "-x", "60", "-y", "10")
	shows("the smaller table", has("> notes", "q quit"))
	tmux("send-keys", "q")
	shows("the shell", has("left with 0"))
}

// SPEC O4, O5: the memory and the processor time that orla top shows of a capsule are those that /proc has of its processes. Its child
// has 64 MiB, and uses half a processor until there is the file calm.
func TestO5TopShowsWhatProcHas(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	tools, calm := t.TempDir(), filepath.Join(t.TempDir(), "calm")
	child := fmt.Sprintf(`import os, time
held = bytearray(b"x" * (64 << 20))
while not os.path.exists(%q):
    began = time.process_time()
    while time.process_time() - began < 0.05: pass
    time.sleep(0.05)
time.sleep(3600)
`, calm)
	newPack(t, tools, "busy", "", map[string]string{
		"child.py": child,
		"main.sh":  "#!/bin/sh\n" + interpreter + " child.py >/dev/null </dev/null &\nprintf '{\"jsonrpc\":\"2.0\",\"method\":\"orla.hello\",\"params\":{\"name\":\"busy\",\"version\":\"1.0.0\",\"capabilities\":[]}}\\n'\ncat >/dev/null\n",
	})
	if err := os.WriteFile(filepath.Join(tools, "busy", "tool.yaml"), []byte("name: busy\nversion: 1.0.0\ndescription: d\nentrypoint: main.sh\nruntime: {mode: capsule}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := serveCapsules(t, tools, "")
	leader := pid(o.waitLog("state", is("busy", "READY")))
	var all []int // the shell, the child, and cat
	testkit.Eventually(t, "the child has its memory", func() bool {
		all = append(children(leader), leader)
		return len(all) == 3 && slices.ContainsFunc(all, func(pid int) bool { return statusField(t, pid, "VmRSS:") > 64<<10 })
	})
	used := func() (memory float64, processor time.Duration) {
		for _, pid := range all {
			memory += float64(statusField(t, pid, "VmRSS:")) / (1 << 10)
			processor += cpu(t, pid)
		}
		return memory, processor
	}
	const head = "NAME STATE FOR PID RESTARTS CALLS ERRORS P50 P99 MEM CPU"
	_, shows := topIn(t, o, tools)
	// shown is what the screen says of memory, in MiB, and of processor time; false if it says nothing of them.
	shown := func(screen string) (memory float64, processor time.Duration, ok bool) {
		for line := range strings.Lines(screen) {
			row := strings.Fields(line)
			if slices.Equal(row, strings.Fields(head)) {
				ok = true
			}
			if len(row) < 3 || row[0] != ">" || row[1] != "busy" {
				continue
			}
			mem, isMiB := strings.CutSuffix(row[len(row)-2], "M")
			memory, err := strconv.ParseFloat(mem, 64)
			processor, wrong := time.ParseDuration(row[len(row)-1])
			return memory, processor, ok && isMiB && err == nil && wrong == nil
		}
		return 0, 0, false
	}
	changes, last := 0, time.Duration(0)
	shows("processor time that grows, and never more than what was used", func(screen string) bool {
		_, processor, ok := shown(screen)
		if _, most := used(); processor > most+50*time.Millisecond { // tenths of a second are shown
			t.Fatalf("%v is shown, and %v used", processor, most)
		}
		if ok && processor > last {
			changes, last = changes+1, processor
		}
		return changes == 3
	})
	if err := os.WriteFile(calm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shows("what /proc has, to 2 MiB and 0.1 s", func(screen string) bool {
		memory, processor, ok := shown(screen)
		wantMemory, wantProcessor := used()
		return ok && math.Abs(memory-wantMemory) <= 2 && (processor-wantProcessor).Abs() <= 100*time.Millisecond
	})
}

// topIn runs orla top in a real terminal. tmux is a command of its tmux, and shows waits until the screen is as it is to be.
func topIn(t *testing.T, o *running, tools string) (tmux func(args ...string) string, shows func(what string, fits func(screen string) bool)) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		needs.Missing(t, "no tmux: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux = func(args ...string) string {
		t.Helper()
		out, err := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	command := fmt.Sprintf("%s top --tools-dir %s; echo left with $?; exec cat", orlaBinary(t), tools)
	start := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "20", "sh", "-c", command)
	start.Env = append(os.Environ(), o.cmd.Env[len(o.cmd.Env)-1])
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", socket, "kill-server").Run() }) // it may be over
	shows = func(what string, fits func(screen string) bool) {
		t.Helper()
		last := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("last screen while waiting until it shows %s:\n%s", what, last)
			}
		})
		testkit.Eventually(t, "it shows "+what, func() bool {
			last = tmux("capture-pane", "-p")
			return fits(last)
		})
	}
	return tmux, shows
}
