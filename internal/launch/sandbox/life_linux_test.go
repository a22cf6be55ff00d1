//go:build amd64 || arm64

package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/needs"
)

func shell(script string) launch.Spec {
	return launch.Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Input: []byte{}, Whole: true}
}

// TestT72HiddenFolders: of a folder of tools that is among the system's programs, a
// tool sees its own package, and neither the others nor what else is there.
func TestT72HiddenFolders(t *testing.T) {
	needRoot(t)
	folder, err := os.MkdirTemp("/usr/local", "orla-test-") //nolint:usetesting // it has to be there
	if err != nil {
		needs.Missing(t, "the test makes a folder in /usr/local: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"mine/a": "mine", "yours/secret": "hunter2", "file": "a file", "other": "hunter2"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	host, _ := newHost(t)
	hidden := sandbox.Options{Hidden: []string{folder, "/srv/nowhere"}}
	spec := shell(`cd ` + folder + `; find . -type f | sort | xargs cat; touch new mine/new 2>&1 | grep -c -i read-only; ls /usr/bin/env`)
	spec.Expose = []string{filepath.Join(folder, "mine"), filepath.Join(folder, "file")}
	if got := said(t, host.Launcher(hidden), spec); got != "a filemine2\n/usr/bin/env" {
		t.Errorf("it says %q", got)
	}
	spec.Expose = nil
	if got := said(t, host.Launcher(hidden), spec); strings.Contains(got, "hunter2") || !strings.HasSuffix(got, "/usr/bin/env") {
		t.Errorf("with nothing shown it says %q", got)
	}
	spec.Path = filepath.Join(folder, "other")
	if _, err := host.Launcher(hidden).Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "sandbox_paths") {
		t.Errorf("what is hidden runs: %v", err)
	}
}

// TestT72WhatItIs: SPEC-TOOLS 7.2: uid and gid 65532, no capabilities in any set,
// no-new-privileges, a filter; and nothing around it but its own.
func TestT72WhatItIs(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	spec := shell(`
		cat /proc/self/status | grep -E '^(Uid|Gid|Groups|Cap[A-Za-z]*|NoNewPrivs|Seccomp):' | tr -s '\t ' ' '
		echo "open $(ls /proc/self/fd | tr '\n' ' ')"
		echo "processes $(ls /proc | grep -c '^[0-9]') first $(ls -d /proc/1 2>&1 | grep -c No)"
		echo "networks $(cat /proc/self/net/dev | grep -c :) of $(grep -c : /proc/self/net/dev)"
		echo "root $(ls / | grep -vx 'lib.*32' | tr '\n' ' ')" # some machines have these too
		echo "name $(cat /proc/self/mountinfo | grep -v ' ro,' | cut -d' ' -f5 | tr '\n' ' ')"
		env | grep -v '^ORLA_INSTANCE=' | sort | tr '\n' ' '; pwd`)
	spec.Env = append(spec.Env, "PLAIN=1")
	spec.Secrets = []string{"TOKEN=hunter2"}
	spec.Dir = "/root"
	got := said(t, host.Launcher(sandbox.Options{}), spec)
	for _, want := range []string{
		"Uid: 65532 65532 65532 65532\n", "Gid: 65532 65532 65532 65532\n", "Groups: \n", "NoNewPrivs: 1\n", "Seccomp: 2\n",
		"CapInh: 0000000000000000\n", "CapPrm: 0000000000000000\n", "CapEff: 0000000000000000\n", "CapBnd: 0000000000000000\n", "CapAmb: 0000000000000000\n",
		"open 0 1 2 3 \n", // ls itself has opened the last
		"first 1\n",       // which is the stage, and not to be seen
		"networks 1 of 1\n",
		"root bin dev etc lib lib64 proc sbin tmp usr \n",
		"name /tmp /proc \n", // what can be written to
		"PATH=/usr/bin:/bin PLAIN=1 PWD=/tmp TOKEN=hunter2 /tmp",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it says\n%s\nwant %q", got, want)
		}
	}
}

// TestT72Descriptors: what Orla has open, and forgot to close for others, a
// sandbox does not get.
func TestT72Descriptors(t *testing.T) {
	needRoot(t)
	host, local := newHost(t)
	forgotten, err := unix.Open("/etc/shadow", unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(forgotten) }()
	spec := shell(fmt.Sprintf("cat <&%d || echo none", forgotten))
	if forgotten > 9 {
		spec = shell(fmt.Sprintf("cat /proc/self/fd/%d || echo none", forgotten))
	}
	if got := said(t, local.Launcher(), spec); !strings.Contains(got, "root:") {
		t.Fatalf("outside it reads %q: nothing was forgotten", got)
	}
	if got := said(t, host.Launcher(sandbox.Options{}), spec); got != "none" {
		t.Errorf("inside it reads %q", got)
	}
}

// TestT72Ends: how a tool ends is told as it is, through the stage that it ends with.
func TestT72Ends(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	l := host.Launcher(sandbox.Options{})
	for script, want := range map[string]launch.Exit{
		"exit 0": {}, "exit 3": {Code: 3}, "exit 143": {Code: 143},
		"kill -TERM $$": {Code: 143, Signal: syscall.SIGTERM}, "kill -SEGV $$": {Code: 139, Signal: syscall.SIGSEGV},
		"kill -KILL 1; kill -TERM 1; kill -SEGV 1; kill -QUIT 1; exit 4": {Code: 4}, // the stage does not mind
		"(sleep 0.01; exit 1) & exit 5":                                  {Code: 5},
		"grep -q '^SigIgn:.0*$' /proc/self/status && exit 6":             {Code: 6}, // nor does it ignore for the tool
	} {
		if _, _, p := run(t, l, shell(script)); p.Exit() != want {
			t.Errorf("%s: %+v; want %+v", script, p.Exit(), want)
		}
	}
	if stdout, stderr, _ := run(t, l, shell("echo one >/dev/stdout; echo two >/dev/stderr; echo three >/proc/self/fd/1; echo four >/dev/null")); stdout != "one\nthree" || stderr != "two" {
		t.Errorf("it writes %q and %q", stdout, stderr)
	}
	spec := shell("cat; exit 0")
	spec.Input = []byte(strings.Repeat("x", 1<<20))
	if got := said(t, l, spec); len(got) != 1<<20 {
		t.Errorf("it reads %d bytes of its input", len(got))
	}
}

// TestT72Stop: a tool in a sandbox is asked to end as any other, and what it
// hid from that ends as well.
func TestT72Stop(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	mark := "MARK=" + t.Name()
	const short, long = 200 * time.Millisecond, time.Minute // which a busy machine may need for who is polite
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		end    func(launch.Process)
		want   launch.Exit
	}{
		"polite":  {`trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`, long, launch.Process.Stop, launch.Exit{Code: 7}},
		"deaf":    {`trap '' TERM; echo ready; while :; do sleep 1000; done`, short, launch.Process.Stop, launch.Exit{Code: 137, Signal: syscall.SIGKILL}},
		"killed":  {`trap '' TERM; echo ready; sleep 1000`, long, launch.Process.Kill, launch.Exit{Code: 137, Signal: syscall.SIGKILL}},
		"forked":  {`(setsid sh -c 'trap "" TERM; setsid sleep 1000 & sleep 1000' &) ; echo ready; exec sleep 1000`, long, launch.Process.Stop, launch.Exit{Code: 143, Signal: syscall.SIGTERM}},
		"by self": {`(setsid sh -c 'setsid sleep 1000 & sleep 1000' &) ; sleep 0.05; echo ready; exit 0`, short, func(launch.Process) {}, launch.Exit{}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := shell(c.script)
			spec.Env, spec.Grace = append(spec.Env, mark), c.grace
			p, err := host.Launcher(sandbox.Options{}).Start(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			_, stdout, stderr := p.Streams()
			defer func() { _, _ = stdout.Close(), stderr.Close() }()
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
				t.Fatal(line, err)
			}
			if name != "by self" && len(marked(mark)) == 0 {
				t.Errorf("of its processes there are %v", marked(mark))
			}
			c.end(p)
			<-p.Exited()
			<-p.Gone()
			if p.Exit() != c.want {
				t.Errorf("it ended as %+v; want %+v", p.Exit(), c.want)
			}
			if left := marked(mark); len(left) > 0 {
				t.Errorf("processes %v live", left)
			}
		})
	}
}

// marked lists what lives and has a variable in its environment.
func marked(variable string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		data, err := os.ReadFile(file) // a zombie has none
		if err == nil && strings.Contains("\x00"+string(data), "\x00"+variable+"\x00") {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// TestT72KillsWithOrla: when Orla is killed, nothing of a sandbox is left, and no
// cgroup that was made for it.
func TestT72KillsWithOrla(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	orla := exec.CommandContext(t.Context(), self)
	mark := "MARK=" + t.Name()
	orla.Env = []string{orlaVar + "=" + mark}
	orla.Stderr = os.Stderr
	stdout, err := orla.StdoutPipe()
	if err := errors.Join(err, orla.Start()); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	for deadline := time.Now().Add(time.Minute); len(marked(mark)) < 3; <-time.After(5 * time.Millisecond) { // between fork and exec one is not marked
		if time.Now().After(deadline) {
			t.Fatalf("there are %d processes in the sandbox", len(marked(mark)))
		}
	}
	pid, _ := strconv.Atoi(marked(mark)[0]) // it is one
	its := cgroupOf(t, pid)
	if err := orla.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = orla.Wait() // it was killed
	there := func() bool {
		_, err := os.Stat(its)
		return its != "" && err == nil
	}
	for deadline := time.Now().Add(time.Minute); len(marked(mark)) > 0 || there(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("processes %v live, the cgroup is there: %t", marked(mark), there())
		}
	}
}

// cgroupOf returns the folder of version 1 in which Orla makes the cgroups of
// sandboxes, of which pid is in one; "" if there is none.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, legacy := strings.Cut(string(where), ":memory:")
	if !legacy {
		return ""
	}
	own, _, _ := strings.Cut(after, "\n")
	return filepath.Join("/sys/fs/cgroup/memory", filepath.Dir(own))
}

// orlaVar makes the test binary start a process that never ends, whose environment has its value.
const orlaVar = "KEEP_SANDBOX"

func keepSandbox(mark string) {
	host, _, err := aHost()
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := shell(`(setsid sh -c 'setsid sleep 1000 & sleep 1000' &) ; sleep 0.05; echo ready; exec sleep 1000`)
	spec.Env = append(spec.Env, mark)
	p, err := host.Launcher(sandbox.Options{}).Start(context.Background(), spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, out, _ := p.Streams()
	line, _ := bufio.NewReader(out).ReadString('\n')
	fmt.Print(line)
	<-p.Gone()
}

// TestT72NotThere: what a sandbox does not show cannot be run in it, and the
// error says what to do.
func TestT72NotThere(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	folder := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hidden := filepath.Join(t.TempDir(), "secretpython")
	if err := os.Symlink("/bin/sh", hidden); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, variable, want string
		code                       fault.Code
	}{
		{"hidden program", hidden, "", hidden + " cannot be run in the sandbox: it is not among what a sandbox sees of this machine; add its folder to sandbox_paths", fault.UnsupportedTool},
		{"no such program", "/usr/bin/orla-none", "", "is not there any more", fault.StartFailed},
		{"hidden interpreter", file("a", "#!"+hidden+"\n", 0o755), "", "the interpreter " + hidden + " of ", fault.UnsupportedTool},
		{"hidden for env", file("b", "#!/usr/bin/env -S secretpython -u\n", 0o755), "PATH=/usr/bin:" + filepath.Dir(hidden), "the interpreter " + hidden + " of ", fault.UnsupportedTool},
		{"no interpreter", file("c", "#!/usr/bin/orla-none\n", 0o755), "", "needs an interpreter or a loader that is not there", fault.UnsupportedTool},
		{"not for others", file("d", "#!/bin/sh\n", 0o700), "", "may not be read or executed by the user of sandboxes (65532)", fault.UnsupportedTool},
		{"no program", file("e", "\x00", 0o755), "", "is not a program for this machine", fault.UnsupportedTool},
	} {
		spec := launch.Spec{Path: c.path, Argv: []string{c.path}, Env: []string{c.variable}, Input: []byte{}, Expose: []string{folder}}
		p, err := host.Launcher(sandbox.Options{}).Start(t.Context(), spec)
		if err == nil {
			t.Fatalf("%s: it is started: %+v", c.name, p)
		}
		if f := fault.From(err); f.Code != c.code || !strings.Contains(f.Reason, c.want) {
			t.Errorf("%s: %s: %s; want %s: %q", c.name, f.Code, f.Reason, c.code, c.want)
		}
	}
	spec := shell("exit 0")
	spec.Path, spec.Argv[0] = hidden, hidden
	said(t, host.Launcher(sandbox.Options{Paths: []string{filepath.Dir(hidden), "/nowhere/at/all"}}), spec)
	for _, path := range []string{"/", "/tmp", "/proc/self", "/dev", "/sys/fs", "relative"} {
		spec.Expose = []string{path}
		if _, err := host.Launcher(sandbox.Options{}).Start(t.Context(), spec); fault.From(err).Code != fault.IsolationUnavailable {
			t.Errorf("%s is exposed: %v", path, err)
		}
	}
}

// TestT72Canceled: a start that nobody waits for any more leaves nothing.
func TestT72Canceled(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := host.Launcher(sandbox.Options{}).Start(ctx, shell("exit 0")); fault.From(err).Code != fault.Canceled {
		t.Errorf("it ends with %v", err)
	}
}

// TestProbe: what this machine can enforce is found out by doing it.
func TestProbe(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	for range 2 {
		if reasons := host.Probe(t.Context()); reasons != nil {
			t.Errorf("no sandbox: %v", reasons)
		}
	}
}
