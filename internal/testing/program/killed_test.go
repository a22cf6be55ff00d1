package program

import (
	"fmt"
	"math/rand/v2"
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

// killWithin starts a command, and kills it at a random time before most has passed. It may have ended by then.
func killWithin(t *testing.T, most time.Duration, cmd *exec.Cmd) time.Duration {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := rand.N(most)
	killed := time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	_ = cmd.Wait() // killed or not
	killed.Stop()
	return after
}

// fastest returns the shortest time that work takes: the first time, much has to be read from the disk.
func fastest(work func(n int)) time.Duration {
	least := time.Hour
	for n := range 3 {
		began := time.Now()
		work(n)
		least = min(least, time.Since(began))
	}
	return least
}

// SPEC M4: kill -9 of the program at any time of an install leaves nothing that is half, and the next install works.
func TestM4KilledInstalls(t *testing.T) {
	needs.Time(t, "kills many installs")
	t.Parallel()
	i := newInstallable(t)
	i.write(i.src, "large", strings.Repeat("0123456789abcdef", 1<<18)) // some milliseconds
	most := fastest(func(n int) {
		i.version(fmt.Sprintf("1.0.%d", n), "#!/bin/sh\necho VERSION\n", "")
		i.must("install", "--local", i.src)
	})
	for round := range needs.Rounds(6, 6) {
		i.version(fmt.Sprintf("2.0.%d", round), "#!/bin/sh\necho VERSION\n", "")
		after := killWithin(t, most, i.command("install", "--local", i.src))
		if out := i.must("call", "say", "--socket", "none"); !strings.Contains(out, ".0.") {
			t.Fatalf("round %d, killed after %s: it says %s", round, after, out)
		}
		i.must("install")
		if out := i.must("verify"); strings.Contains(out, "not") {
			t.Errorf("round %d, killed after %s: %s", round, after, out)
		}
	}
}

// SPEC R4, R5: kill -9 of orla call, which serves nothing, ends all that its installers have started.
func TestR5AKilledCallLeavesNoInstallers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "tool.py", "#!/usr/bin/env python3\n# /// tool\n# description: x\n# setup:\n#   - sh\n#   - -c\n#   - |\n"+
		"#     sh -c 'sleep 600 & echo $! >>"+pids+"; wait' & echo $! >>"+pids+"; wait\n# ///\n")
	needs.Programs(t, "python3")
	cmd := exec.CommandContext(t.Context(), orlaBinary(t), "call", "tool", "--socket", "none")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "ORLA_STATE_DIR="+filepath.Join(dir, "state"), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var started []int
	testkit.Eventually(t, "the installer has started two processes", func() bool {
		text, _ := os.ReadFile(pids) // not there yet
		started = started[:0]
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				started = append(started, pid)
			}
		}
		return len(started) == 2
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	for _, pid := range started {
		testkit.Eventually(t, "a process of the installer has ended", func() bool { return !alive(pid) })
	}
}

// SPEC R5: kill -9 of the program at any time of a build leaves no environment that is half, and the next call works.
func TestR5KilledBuilds(t *testing.T) {
	needs.Time(t, "kills many builds")
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	dir := t.TempDir()
	const parts = 60
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "tool.py", fmt.Sprintf("#!/usr/bin/env python3\n# /// tool\n# description: x\n# setup:\n#   - sh\n#   - -c\n#   - |\n"+
		"#     mkdir $ORLA_ENV/bin && cp requirements.txt $ORLA_ENV && ln -s %s $ORLA_ENV/bin/python\n#     for i in $(seq %d); do head -c 10000 /dev/zero >$ORLA_ENV/part-$i; done\n"+
		"# ///\nimport os, sys\nprint(open(os.path.dirname(os.path.dirname(sys.executable)) + '/requirements.txt').read())\n", interpreter, parts))
	state := filepath.Join(dir, "state")
	call := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), orlaBinary(t), "call", "tool", "--socket", "none")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ORLA_STATE_DIR="+state, "HOME="+dir, "PATH="+filepath.Dir(interpreter)+":"+os.Getenv("PATH"))
		return cmd
	}
	require := func(version string) {
		t.Helper()
		testkit.WriteTool(t, filepath.Join(dir, "tools"), "requirements.txt", version+"\n")
	}
	answers := func(version string) {
		t.Helper()
		if out, err := call().CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != version {
			t.Fatalf("with %s it ends with %v: %s", version, err, out)
		}
	}
	most := fastest(func(n int) {
		require(fmt.Sprintf("acme==0.%d", n))
		answers(fmt.Sprintf("acme==0.%d", n))
	})
	during, rounds := 0, needs.Rounds(6, 6)
	for round := 0; round < rounds || during == 0 && round < 5*rounds; round++ { // a kill may come before the build, or after it
		version := fmt.Sprintf("acme==1.%d", round)
		require(version)
		after := killWithin(t, most, call())
		if found, _ := filepath.Glob(filepath.Join(state, "env", "*.part")); len(found) > 0 {
			during++
		}
		whole, err := filepath.Glob(filepath.Join(state, "env", strings.Repeat("[0-9a-f]", 32)))
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range whole {
			if found, _ := filepath.Glob(filepath.Join(env, "part-*")); len(found) != parts {
				t.Errorf("round %d, killed after %s: an environment has %d of %d files", round, after, len(found), parts)
			}
		}
		answers(version)
	}
	if t.Logf("%d kills during a build, within %s", during, most); during == 0 {
		t.Error("this test proves nothing")
	}
	if left, _ := filepath.Glob(filepath.Join(state, "env", "*.part")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
