package launch_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
)

// capsule is a process of which nothing may be left. Where a test's grace is
// an hour, only what must not be waited for has one.
func capsule(script string, grace time.Duration) launch.Spec {
	spec := shell(script)
	spec.Whole, spec.Grace = true, grace
	return spec
}

// Members of a tree. Each prints its id first. Their naps are short: a shell
// hears a signal after its nap.
const (
	deaf    = `sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done'`
	telling = `sh -c 'trap "echo TERM" TERM; echo $$; while :; do sleep 0.05; done'`
	polite  = `sh -c 'trap "echo TERM; exit" TERM; echo $$; while :; do sleep 0.05; done'`
)

func needCommands(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("a command is not here:", err)
		}
	}
}

// wantDead fails the test for a process that lives now: whatever comes after
// Gone may rely on it.
func wantDead(t *testing.T, pid int) {
	t.Helper()
	if alive(pid) {
		t.Errorf("process %d is alive after Gone", pid)
	}
}

// wantExited fails the test when Exited is not closed now.
func wantExited(t *testing.T, p *launch.LocalProcess) {
	t.Helper()
	select {
	case <-p.Exited():
	default:
		t.Error("Gone is closed before Exited")
	}
}

// readRest reads what p's closed stdout still holds, through r.
func readRest(t *testing.T, p *launch.LocalProcess, r io.Reader) string {
	t.Helper()
	_ = p.Stdout.SetReadDeadline(time.Now().Add(patience)) // a leftover may hold it
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// SPEC D2: when Gone is closed nothing is left of a tree whose leader ended by
// itself, however it ended and wherever the rest went. Nobody is asked first.
func TestWholeTreeEndsWithItsLeader(t *testing.T) {
	needCommands(t, "setsid", "bash")
	for name, script := range map[string]string{
		"member":                  telling + ` & read x`,
		"deaf member":             deaf + ` & read x`,
		"setsid":                  `setsid ` + telling + ` & read x`,
		"deaf setsid":             `setsid ` + deaf + ` & read x`,
		"double fork":             `sh -c "setsid ` + strings.ReplaceAll(deaf, `$`, `\$`) + ` &"; read x`,
		"setsid of a setsid'":     `setsid sh -c "setsid ` + strings.ReplaceAll(deaf, `$`, `\$`) + ` & wait" & read x`,
		"job of its own, no mark": `bash -c 'set -m; env -i sh -c "echo \$\$; while :; do sleep 1; done" &'; read x`,
		"no mark in the group":    `env -i PATH="$PATH" ` + deaf + ` & read x`,
	} {
		if name == "double fork" || name == "setsid of a setsid'" {
			script = strings.ReplaceAll(script, `trap "" TERM; `, ``) // the quotes are taken
		}
		t.Run(name, func(t *testing.T) {
			p := start(t, newLocal(t), capsule(script, time.Hour))
			out := bufio.NewReader(p.Stdout)
			pid := pidFrom(t, out)
			if _, err := io.WriteString(p.Stdin, "end\n"); err != nil { // it exits with 0
				t.Fatal(err)
			}
			within(t, p.Gone(), "the end of the tree")
			wantDead(t, pid)
			wantExited(t, p)
			if rest := readRest(t, p, out); strings.Contains(rest, "TERM") {
				t.Errorf("it was asked to end: %q", rest)
			}
		})
	}
}

// SPEC D2: a tree that is always on the move, each process started by one that
// ends at once, does not get away.
func TestTreeOnTheMoveIsCaught(t *testing.T) {
	needCommands(t, "setsid")
	hop := filepath.Join(t.TempDir(), "hop")
	if err := os.WriteFile(hop, []byte("setsid sh $0 &\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLocal(t)
	for range 20 { // most are caught by luck
		p := start(t, l, capsule("sh "+hop+"; exit", time.Hour))
		within(t, p.Gone(), "the end of the tree")
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), hop) { // it may be gone
			t.Errorf("%s: %q lives", path, line)
		}
	}
}

// SPEC D11: the end of the input is enough for most, and nobody waits longer
// than they take.
func TestFinishEndsWithTheTree(t *testing.T) {
	p := start(t, newLocal(t), capsule(`trap "echo TERM" TERM; read x; exit 3`, time.Hour))
	p.Finish(time.Hour)
	_ = p.Stdin.Close()
	within(t, p.Gone(), "the end of the tree")
	wantExited(t, p)
	if code := p.Exit().Code; code != 3 {
		t.Errorf("exit code = %d; want its own, 3", code)
	}
	if out := readRest(t, p, p.Stdout); out != "" {
		t.Errorf("it was asked to end: %q", out)
	}
}

// SPEC D11: a step ends as soon as the tree is empty, not when the leader is
// gone, and what outlives one meets the next.
func TestFinishStepsThroughTheTree(t *testing.T) {
	needCommands(t, "setsid")
	l := newLocal(t)
	const orphaned = ` & read x` // the leader ends with its input
	const led = ` & while :; do read x; sleep 0.1; done`
	// It ends by itself once its leader has.
	const late = `sh -c 'trap "echo TERM" TERM; echo $$; while kill -0 $1; do sleep 0.01; done; echo done' member $$`
	for _, c := range []struct {
		name, script string
		wait, grace  time.Duration
		want         string // what a member says after its id
	}{
		{"member that obeys", polite + orphaned, time.Millisecond, time.Hour, "TERM\n"},
		{"member that goes on", telling + orphaned, time.Millisecond, 2 * time.Second, "TERM\n"},
		{"deaf member", deaf + orphaned, time.Millisecond, time.Millisecond, ""},
		{"setsid that obeys", "setsid " + polite + orphaned, time.Millisecond, time.Hour, "TERM\n"},
		{"setsid that goes on", "setsid " + telling + orphaned, time.Millisecond, 2 * time.Second, "TERM\n"},
		{"deaf setsid", "setsid " + deaf + orphaned, time.Millisecond, time.Millisecond, ""},
		{"member of a leader that lives on", telling + led, time.Millisecond, 2 * time.Second, "TERM\n"},
		{"setsid of a leader that lives on", "setsid " + telling + led, time.Millisecond, 2 * time.Second, "TERM\n"},
		{"member that ends by itself", late + orphaned, time.Hour, time.Hour, "done\n"},
		{"setsid that ends by itself", "setsid " + late + orphaned, time.Hour, time.Hour, "done\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // a grace takes its time
			p := start(t, l, capsule(c.script, c.grace))
			out := bufio.NewReader(p.Stdout)
			member := pidFrom(t, out)
			p.Finish(c.wait)
			_ = p.Stdin.Close()
			within(t, p.Gone(), "the end of the tree")
			wantDead(t, member)
			if said := readRest(t, p, out); said != c.want {
				t.Errorf("it said %q; want %q", said, c.want)
			}
		})
	}
}

// A helper that a process starts when it is asked to end has the grace too.
func TestLateHelperHasTheGrace(t *testing.T) {
	needCommands(t, "setsid")
	const helper = `setsid sh -c "sleep 0.2; echo tidy" &`
	p := start(t, newLocal(t), capsule(`trap '`+helper+` exit' TERM; echo up; while :; do sleep 0.01; done`, time.Hour))
	out := bufio.NewReader(p.Stdout)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.Finish(time.Millisecond)
	within(t, p.Gone(), "the end of the tree")
	if said := readRest(t, p, out); said != "tidy\n" {
		t.Errorf("it said %q; want its helper's word", said)
	}
}

// SPEC D11: whoever is in a hurry cuts each step short.
func TestFinishIsCutShort(t *testing.T) {
	const hold = ` & read x`
	l := newLocal(t)
	for _, c := range []struct {
		name, script string
		wait, grace  time.Duration
		cut          func(*launch.LocalProcess)
		want         string
	}{
		{"patience by Stop", telling + "& trap '' TERM; while :; do sleep 1; done", time.Hour, 2 * time.Second, (*launch.LocalProcess).Stop, "TERM\n"},
		{"patience by Kill", deaf + "& trap '' TERM; while :; do sleep 1; done", time.Hour, time.Hour, (*launch.LocalProcess).Kill, ""},
		{"grace by Kill", deaf + "& trap '' TERM; while :; do sleep 1; done", time.Millisecond, time.Hour, (*launch.LocalProcess).Kill, ""},
		{"patience without a leader by Stop", polite + hold, time.Hour, time.Hour, (*launch.LocalProcess).Stop, "TERM\n"},
		{"patience without a leader by Kill", deaf + hold, time.Hour, time.Hour, (*launch.LocalProcess).Kill, ""},
		{"grace without a leader by Kill", deaf + hold, time.Millisecond, time.Hour, (*launch.LocalProcess).Kill, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // a grace takes its time
			p := start(t, l, capsule(c.script, c.grace))
			out := bufio.NewReader(p.Stdout)
			member := pidFrom(t, out)
			p.Finish(c.wait)
			_ = p.Stdin.Close()
			if strings.HasSuffix(c.script, hold) {
				within(t, p.Exited(), "the leader's end")
			}
			c.cut(p)
			c.cut(p) // the second is nothing
			within(t, p.Gone(), "the end of the tree")
			wantDead(t, member)
			if said := readRest(t, p, out); said != c.want {
				t.Errorf("it said %q; want %q", said, c.want)
			}
		})
	}
}

// Finish, Stop and Kill may be called in any order by anybody, and after the end.
func TestEndsInAnyOrder(t *testing.T) {
	l := newLocal(t)
	calls := []func(*launch.LocalProcess){
		func(p *launch.LocalProcess) { p.Finish(time.Millisecond) },
		func(p *launch.LocalProcess) { p.Finish(time.Hour) },
		(*launch.LocalProcess).Stop,
		(*launch.LocalProcess).Kill,
		func(p *launch.LocalProcess) { _ = p.Stdin.Close() },
	}
	for round := range 40 {
		p := start(t, l, capsule(`sleep 100 & read x`, time.Millisecond))
		var callers sync.WaitGroup
		for i := range calls {
			callers.Go(func() { calls[(i+round)%len(calls)](p) })
		}
		callers.Wait()
		within(t, p.Gone(), "the end of the tree")
		wantExited(t, p)
		for _, call := range calls {
			call(p)
		}
	}
}

// A grandchild that holds a stream open does not keep its reader: the owner
// sets a deadline once the process has ended.
func TestReadDeadlineFreesAReader(t *testing.T) {
	needCommands(t, "setsid")
	p := start(t, newLocal(t), shell(`setsid sh -c 'echo $$; exec sleep 100' & read x`))
	out := bufio.NewReader(p.Stdout)
	holder := pidFrom(t, out)
	t.Cleanup(func() { _ = syscall.Kill(holder, syscall.SIGKILL) })
	read := make(chan error, 1)
	go func() {
		_, err := out.ReadByte()
		read <- err
	}()
	_ = p.Stdin.Close()
	within(t, p.Exited(), "the exit")
	if err := p.Stdout.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the reader got %v; want the deadline", err)
	}
}

// A process that never reads does not keep its writer.
func TestWriteDeadlineFreesAWriter(t *testing.T) {
	p := start(t, newLocal(t), capsule(`while :; do sleep 1; done`, time.Millisecond))
	var n int
	var err error
	for within := 50 * time.Millisecond; n == 0 && within < patience; within *= 2 { // the deadline may pass before the write begins
		if err := p.Stdin.SetWriteDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		n, err = p.Stdin.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 1<<20 {
		t.Errorf("wrote %d bytes, %v; want what fits and the deadline", n, err)
	}
}

// SPEC L5: a tree that takes its time delays nobody else's start or end.
func TestNobodyWaitsForAnother(t *testing.T) {
	l := newLocal(t)
	slow := start(t, l, capsule(deaf+` & read x`, time.Hour))
	pidFrom(t, bufio.NewReader(slow.Stdout))
	slow.Finish(time.Millisecond)
	_ = slow.Stdin.Close()
	var all []*launch.LocalProcess
	for range 100 {
		p := start(t, l, capsule(`sleep 100 & echo $!; read x`, time.Hour))
		all = append(all, p)
	}
	members := make([]int, 0, len(all))
	for _, p := range all {
		members = append(members, pidFrom(t, bufio.NewReader(p.Stdout)))
	}
	for i, p := range all {
		if i%2 == 0 { // half of them end by themselves
			p.Finish(time.Millisecond)
		}
		_ = p.Stdin.Close()
	}
	for i, p := range all {
		within(t, p.Gone(), fmt.Sprintf("the end of tree %d", i))
		wantDead(t, members[i])
	}
	select {
	case <-slow.Gone():
		t.Error("the slow one is gone already; it could not have delayed anybody")
	default:
	}
	slow.Kill()
	within(t, slow.Gone(), "the end of the slow one")
}
