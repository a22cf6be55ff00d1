package program

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC J2: what a killed Orla leaves behind is in nobody's way, and an Orla that
// stops leaves nothing.
func TestJ2AKilledOrlaIsNotRunningAndIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
	o := serveThere(t, dir)
	socket := o.status().Socket
	for path, want := range map[string]fs.FileMode{filepath.Dir(socket): fs.ModeDir | 0o700, socket: fs.ModeSocket | 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %s", path, info.Mode(), err, want)
		}
	}
	o.signal(syscall.SIGKILL)
	o.wait()
	if _, err := os.Lstat(socket); err != nil {
		t.Errorf("the kill left nothing: %v", err)
	}
	if s := o.orla("status"); s.code != 3 || !strings.Contains(s.err, "no Orla is running") {
		t.Errorf("orla status of a killed Orla ends with %d: %s", s.code, s.err)
	}
	if got := o.mustOrla("call", "echo"); got != "ok\n" {
		t.Errorf("orla call without an Orla = %q", got)
	}
	o = o.again()
	if s := o.status(); s.Pid != o.cmd.Process.Pid || s.Socket != socket {
		t.Errorf("the next one: %+v", s)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(filepath.Dir(socket)); err != nil || len(left) != 0 {
		t.Errorf("the stop left %v, %v", left, err)
	}
}

// SPEC J2: a second Orla on a folder serves, says who has the socket, and takes
// it once it is free.
func TestJ2TwoOrlasOnOneFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
	first := serveThere(t, dir)
	second := startAs(t, first.home(), dir, orlaBinary(t), "--port", "0")
	const taken = "another Orla serves this folder and has its control socket; this one runs without a control socket until the other ends"
	second.waitLog(taken, func(l map[string]any) bool { return pid(l) == first.cmd.Process.Pid && l["url"] == first.url })
	second.url, _ = second.waitLog("serving", nil)["url"].(string)
	if got := second.mustCall("echo"); got != "ok\n" {
		t.Errorf("the second one answers %q", got)
	}
	if s := second.status(); s.Pid != first.cmd.Process.Pid {
		t.Errorf("pid %d has the socket; want the first, %d", s.Pid, first.cmd.Process.Pid)
	}
	follow := second.follow()
	second.signal(syscall.SIGHUP)
	follow.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	first.signal(syscall.SIGTERM)
	first.wait()
	testkit.Eventually(t, "the second one has the socket", func() bool { return second.orla("status").code == 0 })
	if s := second.status(); s.Pid != second.cmd.Process.Pid {
		t.Errorf("pid %d has the socket; want the second, %d", s.Pid, second.cmd.Process.Pid)
	}
	if n := second.count(taken, nil); n != 1 {
		t.Errorf("the warning was logged %d times", n)
	}
}

// SPEC J2: with several, a command says which there are; a named folder, or a
// project that one stands in, is never exchanged for another.
func TestJ2SeveralOrlas(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	one := serveThere(t, dirs[0])
	var in io.Closer
	two := startPrepared(t, dirs[1], func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "HOME="+one.home())
		var err error
		if in, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}, orlaBinary(t), "--stdio")
	two.waitLog("serving", nil)
	if s := two.status(); s.URL != "stdio" || s.Pid != two.cmd.Process.Pid || s.Sessions != nil {
		t.Errorf("an Orla on stdio: %+v", s)
	}
	lost := one.command("status")
	lost.Dir = t.TempDir()
	out, _ := lost.CombinedOutput()
	if lost.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "2 Orlas are running, and none serves ") ||
		!strings.Contains(string(out), filepath.Join(dirs[0], "tools")+": pid ") || !strings.Contains(string(out), "say which with --tools-dir") {
		t.Errorf("exit code %d:\n%s", lost.ProcessState.ExitCode(), out)
	}
	if got := one.mustOrla("status", "--tools-dir", filepath.Join(dirs[1], "tools")); !strings.Contains(got, "at stdio") {
		t.Errorf("the second one by its folder: %s", got)
	}
	_ = in.Close()
	two.wait()
	alone := one.command("status")
	alone.Dir = lost.Dir
	if out, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(out), one.url) {
		t.Errorf("the only one, from elsewhere: %v\n%s", err, out)
	}
	// Another project is not this one's, whichever way it is one.
	for what, make := range map[string]func(dir string) error{
		"tools": func(dir string) error { return os.Mkdir(filepath.Join(dir, "tools"), 0o755) },
		"orla.yaml": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("port: 0\n"), 0o644)
		},
	} {
		other := t.TempDir()
		if err := make(other); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"stop", "--all"}, {"restart", "echo"}, {"start", "echo"}, {"reload"}, {"status"}, {"logs"}} {
			cmd := one.command(args...)
			cmd.Dir = other
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "no Orla serves "+filepath.Join(other, "tools")+"; one serves "+filepath.Join(dirs[0], "tools")) ||
				!strings.Contains(string(out), "hint: --tools-dir "+filepath.Join(dirs[0], "tools")+" means that one") {
				t.Errorf("orla %s in a project with %s: exit code %d:\n%s", args[0], what, cmd.ProcessState.ExitCode(), out)
			}
		}
	}
	named := one.orla("status", "--tools-dir", "elsewhere")
	if named.code != 3 || !strings.Contains(named.err, "no Orla serves ") {
		t.Errorf("a named folder that nobody serves: %d %s", named.code, named.err)
	}
}

// SPEC J2: the only Orla shows anywhere what it has. It is changed only where it belongs:
// where it was started, next to its tools, or in them.
func TestJ2AnOrlaIsChangedOnlyWhereItBelongs(t *testing.T) {
	t.Parallel()
	project, elsewhere := t.TempDir(), t.TempDir()
	tools := filepath.Join(project, "tools")
	testkit.WriteTool(t, filepath.Join(tools, "below"), "echo.sh", "#!/bin/sh\necho ok\n")
	o := startOrla(t, elsewhere, "--port", "0", "--tools-dir", tools)
	o.waitLog("serving", nil)
	for _, c := range []struct {
		dir  string
		here bool
	}{
		{elsewhere, true},
		{project, true},
		{tools, true},
		{filepath.Join(tools, "below"), true},
		{t.TempDir(), false},
		{filepath.Dir(project), false},
		{"/", false},
	} {
		for _, args := range [][]string{{"stop", "--all"}, {"start", "--all"}, {"restart", "--all"}, {"reload"}} {
			cmd := o.command(args...)
			cmd.Dir = c.dir
			out, err := cmd.CombinedOutput()
			refused := cmd.ProcessState.ExitCode() == 3 && strings.Contains(string(out), "hint: --tools-dir "+tools+" means that one")
			if c.here && err != nil || !c.here && !refused {
				t.Errorf("orla %s in %s: exit code %d:\n%s", args[0], c.dir, cmd.ProcessState.ExitCode(), out)
			}
		}
		cmd := o.command("status")
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("orla status in %s: %v\n%s", c.dir, err, out)
		}
	}
}

// SPEC J2: without a place for its socket Orla serves on, and says why nobody
// can ask it.
func TestJ2NoPlaceForTheSocket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, socket, why string }{
		{"a folder that every user may write to", "open/orla.sock", "every user may write to"},
		{"a folder that is not there", "absent/orla.sock", "no such file or directory"},
		{"a file in its place", "file.sock", "is not a socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
			testkit.WriteTool(t, dir, "file.sock", "")
			if err := os.Mkdir(filepath.Join(dir, "open"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "open"), 0o777); err != nil {
				t.Fatal(err)
			}
			o := startOrla(t, dir, "--port", "0", "--socket", c.socket)
			o.waitLog("no control socket; orla status and the like cannot reach this Orla", func(l map[string]any) bool {
				return strings.Contains(fmt.Sprint(l["err"]), c.why)
			})
			o.url, _ = o.waitLog("serving", nil)["url"].(string)
			if got := o.mustCall("echo"); got != "ok\n" {
				t.Errorf("echo = %q", got)
			}
			if s := o.orla("status", "--socket", c.socket); s.code == 0 {
				t.Errorf("orla status answers: %s", s.out)
			}
		})
	}
}

// A state folder that cannot be written, with nowhere else to go.
func TestJ2AStateFolderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
	testkit.WriteTool(t, dir, "state", "a file")
	if err := os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("state_dir: state\nport: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOrla(t, dir)
	o.waitLog("no control socket; orla status and the like cannot reach this Orla", nil)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	if got := o.mustCall("echo"); got != "ok\n" {
		t.Errorf("echo = %q", got)
	}
}

// SPEC J2: where modes let another user in, Orla does not.
func TestJ2AnotherUserIsSentAway(t *testing.T) {
	t.Parallel()
	needs.Root(t, "be another user")
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
	socket := shortPath(t)
	o := startOrla(t, dir, "--port", "0", "--socket", socket)
	o.waitLog("serving", nil)
	for _, open := range []string{filepath.Dir(socket), socket} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(filepath.Dir(socket), "orla") // where that user finds it
	raw, err := os.ReadFile(orlaBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := testkit.WriteProgram(program, raw); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]bool{0: true, 65534: false} {
		cmd := exec.Command(program, "status", "--socket", socket)
		cmd.Dir, cmd.Env = "/", []string{"HOME=/nonexistent"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("user %d: %v\n%s", uid, err, out)
		}
	}
	o.waitLog("refused a process of another user at the control socket", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["err"]), "65534") })
}

// A port that an Orla has is said to be that one's.
func TestAPortOfAnotherOrla(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	o := serveThere(t, dir)
	port := o.url[strings.LastIndexByte(strings.TrimSuffix(o.url, "/mcp"), ':')+1:]
	port = strings.TrimSuffix(port, "/mcp")
	for at, want := range map[string][]string{
		dir:       {"orla: an Orla serves " + filepath.Join(dir, "tools") + " already, at " + o.url, "hint: orla status"},
		elsewhere: {"127.0.0.1:" + port + " is in use by the Orla that serves " + filepath.Join(dir, "tools"), "hint: take another port"},
	} {
		again := o.command("serve", "--port", port, "--log-level", "fatal")
		again.Dir = at
		out, _ := again.CombinedOutput()
		for _, part := range want {
			if again.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), part) {
				t.Errorf("in %s: exit code %d, want %q:\n%s", at, again.ProcessState.ExitCode(), part, out)
			}
		}
	}
}
