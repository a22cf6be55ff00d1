package container_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/testing/attack"
	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// running counts the processes of this machine with a word in their command line.
func running(t *testing.T, word string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range all {
		text, _ := os.ReadFile(path)
		stat, _ := os.ReadFile(filepath.Dir(path) + "/stat")
		if bytes.Contains(text, []byte("hang\x00"+word)) && !bytes.Contains(stat, []byte(") Z ")) {
			n++
		}
	}
	return n
}

// leaver is a process that leaves another of a session of its own, and hangs.
func leaver(t *testing.T, word string) launch.Spec {
	path := attack.Program(t)
	return launch.Spec{Path: path, Argv: []string{path, "daemon", word}, Expose: []string{path}, Input: []byte{}}
}

// hears waits until a process has said something.
func hears(t *testing.T, p launch.Process) {
	t.Helper()
	_, out, _ := p.Streams()
	if err := out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
}

// SPEC-TOOLS 7.3: at the deadline the container is killed and removed by its name;
// nothing lives on, whatever forked twice, and whoever ignores SIGTERM.
func TestT73StopLeavesNothing(t *testing.T) {
	b := usualBench(t)
	word := "left-by-stop"
	spec := leaver(t, word)
	p := b.start(b.launcher(b.ours()), spec)
	hears(t, p)
	if running(t, word) == 0 {
		t.Fatal("the attack does not work")
	}
	p.Stop()
	within(t, "its end", p.Gone())
	if n, left := running(t, word), b.left(); n > 0 || len(left) > 0 {
		t.Errorf("%d processes and %v are left", n, left)
	}
}

// SPEC C4, SPEC-TOOLS 7.3: SIGTERM reaches the process, which may end as it likes.
func TestT73StopIsPolite(t *testing.T) {
	b := usualBench(t)
	spec := sh(`trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done`)
	spec.Grace = 30 * time.Second
	p := b.start(b.launcher(b.ours()), spec)
	hears(t, p)
	p.Stop()
	o := b.attend(p)
	if o.exit.Code != 7 || o.stdout != "bye\n" {
		t.Errorf("%+v", o)
	}
}

// SPEC-TOOLS 7.3: who ignores SIGTERM is killed after the grace; Kill does not
// wait for it.
func TestT73KillDoesNotWait(t *testing.T) {
	b := usualBench(t)
	deaf := sh(`trap '' TERM; echo ready; while :; do sleep 0.1; done`)
	deaf.Grace = 10 * time.Minute
	p := b.start(b.launcher(b.ours()), deaf)
	hears(t, p)
	p.Stop()
	p.Kill()
	within(t, "its end", p.Gone())
	deaf.Grace = 100 * time.Millisecond
	q := b.start(b.launcher(b.ours()), deaf)
	hears(t, q)
	q.Finish(time.Millisecond) // whose input is at its end already
	within(t, "its end", q.Gone())
	if left := b.left(); len(left) > 0 || q.Exit().Code != 137 {
		t.Errorf("%v is left; %+v", left, q.Exit())
	}
}

// SPEC-TOOLS 7.3: one that is ended while it is being made is not left behind
// either: not yet made, made and not started, just started.
func TestT73KilledWhileItIsMade(t *testing.T) {
	b := usualBench(t)
	l := b.launcher(b.ours())
	b.run(l, sh("true")) // the engine is known
	for _, after := range []time.Duration{0, 60, 150} {
		p := b.start(l, sh("sleep 60"))
		if after > 0 {
			<-time.After(after * time.Millisecond) // wherever it is by then
		}
		p.Kill()
		within(t, "its end", p.Gone())
		if left := b.left(); len(left) > 0 {
			t.Errorf("after %d ms: %v is left", after, left)
		}
	}
}

// SPEC-TOOLS 7.3: a container whose command line was killed is found by its name.
func TestT73TheCommandLineIsKilled(t *testing.T) {
	b := usualBench(t)
	p := b.start(b.launcher(b.ours()), sh(`echo ready; sleep 60`))
	hears(t, p)
	if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", p.Gone())
	if left := b.left(); len(left) > 0 || p.Exit().Err == nil {
		t.Errorf("%v is left; %+v", left, p.Exit())
	}
}

// slowly returns an engine whose podman, for a command line with the word made-slowly, starts a process as it starts
// conmon, with the name of the container, and knows the container only when it was asked to kill it by SIGKILL three
// times. conmon returns whether that process was started and lives, or is not reaped yet.
func slowly(t *testing.T) (b *bench, conmon func() (started, alive bool)) {
	t.Helper()
	dir := t.TempDir()
	monitor := filepath.Join(dir, "conmon")
	if err := os.WriteFile(monitor, []byte("#!/bin/sh\nsleep 98765 &\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, func(o *container.EngineOptions) {
		o.Program = script(t, fmt.Sprintf(`cd %q
case "$*" in
*made-slowly*)
	for arg; do case $arg in --name=*) name=${arg#--name=};; esac; done
	(
		env -i PATH="$PATH" setsid ./conmon -n "$name" </dev/null >/dev/null 2>&1 &
		echo $! >writing && mv writing started
	)
	until [ "$(grep -c KILL asked)" -ge 3 ]; do sleep 0.05; done
	touch known
	while kill -0 -- "-$(cat started)" 2>/dev/null; do sleep 0.05; done
	exit 137;;
kill*)
	echo "$*" >>asked
	[ -e known ] || { echo "no such container" >&2; exit 125; }
	pid=$(cat started)
	exec kill -KILL -- "-$pid";;
esac
exec %q "$@"
`, dir, o.Program))
	})
	if !b.podman.IsPodman() {
		t.Skip("docker has no conmon")
	}
	if err := os.WriteFile(filepath.Join(dir, "asked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pid := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "started")) // it may not be started yet
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	t.Cleanup(func() {
		if n := pid(); n > 0 {
			_ = syscall.Kill(-n, syscall.SIGKILL) // it should be gone
		}
	})
	return b, func() (started, alive bool) {
		n := pid()
		return n > 0, n > 0 && syscall.Kill(-n, 0) == nil
	}
}

// SPEC C4, SPEC-TOOLS 7.3: podman is not killed while it makes a container, or conmon and the container's first
// process would stay: podman would not know of them.
func TestT73PodmanIsNotKilledWhileItMakesAContainer(t *testing.T) {
	b, conmon := slowly(t)
	spec := sh(": made-slowly")
	spec.Grace = 100 * time.Millisecond
	p := b.start(b.launcher(b.ours()), spec)
	eventually(t, "conmon runs", func() bool { started, _ := conmon(); return started })
	p.Stop()
	within(t, "its end", p.Gone())
	if exit := p.Exit(); exit.Signal != 0 {
		t.Errorf("podman run was ended by %v", exit.Signal)
	}
	eventually(t, "conmon ends", func() bool { _, alive := conmon(); return !alive })
}

// SPEC C4, SPEC-TOOLS 7.3: if podman is killed while it makes a container, what it does not know of is ended too.
func TestT73NothingOfAHalfMadeContainerIsLeft(t *testing.T) {
	b, conmon := slowly(t)
	p := b.start(b.launcher(b.ours()), sh(": made-slowly"))
	eventually(t, "conmon runs", func() bool { started, _ := conmon(); return started })
	if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", p.Gone())
	eventually(t, "conmon ends", func() bool { _, alive := conmon(); return !alive })
}

// asOrla makes the test binary an Orla that starts a container and is killed.
const asOrla = "ORLA_TEST_CONTAINER_OWNER"

// SPEC-TOOLS 7.3: what an Orla left that was killed is swept by the next one that
// serves the same folder, also when podman was killed while it removed one; what
// belongs to a living one, or to another folder, stays. So does a container that Orla has not named: whoever made its image may
// have chosen its labels.
func TestT73Sweep(t *testing.T) {
	if os.Getenv(asOrla) != "" {
		ownAndHang(t)
		return
	}
	b := usualBench(t)
	b.log = &testkit.Log{}          // of this test's engines alone
	t.Setenv("TMPDIR", t.TempDir()) // as are their folders
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	another := func() *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self, "-test.run=^TestT73Sweep$", "-test.v")
		cmd.Env = append(append(os.Environ(), b.podman.Environ...), asOrla+"=swept", "ORLA_TEST_OWNER_ENGINE="+b.podman.Program, "ORLA_TEST_PROGRAM="+program(t))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may be dead
			_ = cmd.Wait()
		})
		said := make([]byte, 0, 4096)
		for !bytes.Contains(said, []byte("READY")) {
			n, err := out.Read(said[len(said):cap(said)])
			if said = said[:len(said)+n]; err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
		}
		return cmd
	}
	names := func(label string) []string {
		return strings.Fields(b.podman.Run(t, "ps", "--all", "--format={{.Names}}", "--filter=label="+label))
	}
	t.Cleanup(func() { // after the one that lives is killed, too
		for _, name := range names("orla.tool=swept") {
			b.podman.Run(t, "rm", "--force", name)
		}
	})
	torn := another()
	half := names("orla.tool=swept")
	labels := []string{"create", "--name=orla-db-1"}
	for _, key := range []string{"orla.folder", "orla.owner", "orla.tool"} {
		labels = append(labels, "--label="+key+"="+b.podman.Run(t, "inspect", "--format={{index .Config.Labels \""+key+"\"}}", half[0]))
	}
	b.podman.Run(t, append(labels, containertest.Image, "true")...)
	dead, alive := another(), another()
	if got := names("orla.tool=swept"); len(half) != 1 || len(got) != 4 {
		t.Fatalf("there are %v", got)
	}
	folders := func(of *exec.Cmd) []string {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("orla-containers-*.%d.*", of.Process.Pid)))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := folders(dead); len(got) != 1 {
		t.Fatalf("it has the folders %v", got)
	}
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dead.Wait() // it was killed
	if err := torn.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = torn.Wait() // it was killed, too
	if b.podman.IsPodman() {
		b.podman.Run(t, "stop", "--time=0", half[0])
		b.podman.Tear(t, half[0])
	}

	other := b.newEngine(func(o *container.EngineOptions) { o.Folder = "another folder" })
	other.Sweep()
	other.Close()
	if got := names("orla.tool=swept"); len(got) != 4 {
		t.Errorf("who serves another folder left %v", got)
	}
	// Podman lists nothing, once, as when a container goes in the middle.
	once := filepath.Join(t.TempDir(), "once")
	stumbling := script(t, fmt.Sprintf(`[ "$1 $2" = "ps --all" ] && mkdir %q 2>/dev/null && { echo "Error: container not known" >&2; exit 125; }
exec %q "$@"
`, once, b.podman.Program))
	next := b.newEngine(func(o *container.EngineOptions) { o.Folder, o.Program = "swept", stumbling })
	next.Sweep()
	eventually(t, "two are swept", func() bool {
		return strings.Count(b.log.String(), "removed a container that an earlier Orla left") == 2
	})
	next.Close()
	if _, err := os.Stat(once); err != nil {
		t.Errorf("podman did not stumble: %v", err)
	}
	if got := names("orla.tool=swept"); len(got) != 2 || !slices.Contains(got, "orla-db-1") {
		t.Errorf("%v is left", got)
	}
	if ofDead, ofAlive := folders(dead), folders(alive); len(ofDead) != 0 || len(ofAlive) != 1 {
		t.Errorf("the folders %v and %v are left", ofDead, ofAlive)
	}
	if alive.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the one that lives does not")
	}
}

func ownAndHang(t *testing.T) {
	log := discard()
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e := container.NewEngine(container.EngineOptions{
		Program: os.Getenv("ORLA_TEST_OWNER_ENGINE"), Local: local, Log: log, Folder: os.Getenv(asOrla), Environ: os.Environ(), Prober: []string{os.Getenv("ORLA_TEST_PROGRAM"), "probe"},
	})
	p, err := container.New(container.Options{Engine: e, Tool: "swept", Image: "localhost/orla-test:1"}).Start(t.Context(), sh("echo ready; sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	hears(t, p)
	t.Log("READY")
	<-p.Gone() // or this process is killed
}
