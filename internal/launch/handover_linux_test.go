package launch

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch/carry"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC Q1: a process that was given goes on with its pipes, belongs to the next Local, and ends as one that this has
// started. Nothing else can be given.
func TestQ1AProcessIsGivenAndAdopted(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	before, err := NewLocal(Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Path: "/bin/cat", Argv: []string{"cat"}, Whole: true, Grace: 3 * time.Second}
	p, err := before.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	other, err := before.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	other.Kill()
	if s, ok := other.Give(); ok {
		t.Errorf("a process that is being ended is given: %+v", s)
	}
	given := ProcessState{}
	testkit.Eventually(t, "the process is given", func() bool { // its end is waited for by then
		var ok bool
		given, ok = p.Give()
		return ok
	})
	if s, ok := p.Give(); ok {
		t.Errorf("it is given twice: %+v", s)
	}
	<-p.Gone()
	for _, f := range []interface{ Close() error }{p.Stdin, p.Stdout, p.Stderr} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	state := before.Leave()
	if len(state.Children) != 1 || state.Children[0] != p.Pid() || state.Instance != before.instance {
		t.Errorf("the Local is left as %+v", state)
	}
	raw, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var read ProcessState
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	after, err := NewLocal(Options{Log: log, Before: state})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	q, err := after.Adopt(read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.Adopt(read); err == nil {
		t.Error("its descriptors are taken twice")
	}
	if left := carry.Given(); len(left) > 0 {
		t.Errorf("the descriptors %v were not taken", left)
	}
	if q.Pid() != p.Pid() || q.mark != p.mark || q.tag != p.tag || q.grace != spec.Grace {
		t.Errorf("adopted as %+v", q.traces)
	}
	if _, err := q.Stdin.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(q.Stdout).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("it answers %q, %v", line, err)
	}
	q.Kill()
	<-q.Gone()
	if exit := q.Exit(); exit.Signal != syscall.SIGTERM && exit.Signal != syscall.SIGKILL {
		t.Errorf("it ended as %+v", exit)
	}
	for _, f := range []interface{ Close() error }{q.Stdin, q.Stdout, q.Stderr} {
		_ = f.Close()
	}
}

// SPEC Q1: a process that has ended by the time that it is adopted is one that has ended. One that is not a child of this
// process is refused.
func TestQ1AnAdoptedProcessMayHaveEnded(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	l, err := NewLocal(Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Start(t.Context(), Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "read x; exit 7"}, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	given := ProcessState{}
	testkit.Eventually(t, "the process is given", func() bool {
		var ok bool
		given, ok = p.Give()
		return ok
	})
	_, _ = p.Stdin.WriteString("x\n")
	testkit.Eventually(t, "the process has ended", func() bool { return hasEnded(p.Pid(), syscall.WNOHANG) })
	q, err := l.Adopt(given)
	if err != nil {
		t.Fatal(err)
	}
	<-q.Gone()
	if exit := q.Exit(); exit.Code != 7 {
		t.Errorf("it ended as %+v", exit)
	}
	if _, err := l.Adopt(ProcessState{PID: 1}); err == nil || !strings.Contains(err.Error(), "not a child") {
		t.Errorf("process 1 is adopted: %v", err)
	}
	l.Close()
	for _, one := range []*LocalProcess{p, q} {
		for _, f := range []interface{ Close() error }{one.Stdin, one.Stdout, one.Stderr} {
			_ = f.Close()
		}
	}
}
