package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC O5: orla top in a real terminal: it shows what happens, and its keys operate capsules.
func TestO5TopInATerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		needs.Missing(t, "no tmux: %v", err)
	}
	tools := t.TempDir()
	newPack(t, tools, "notes", "", map[string]string{"main.sh": "#!/bin/sh\necho it begins >&2\nprintf '{\"jsonrpc\":\"2.0\",\"method\":\"orla.hello\",\"params\":{\"name\":\"notes\",\"version\":\"1.0.0\",\"capabilities\":[]}}\\n'\ncat >/dev/null\n"})
	if err := os.WriteFile(filepath.Join(tools, "notes", "tool.yaml"), []byte("name: notes\nversion: 1.0.0\ndescription: d\nentrypoint: main.sh\nruntime: {mode: capsule}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := serveCapsules(t, tools, "")
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(args ...string) string {
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
	shows := func(what string, fits func(screen string) bool) {
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
