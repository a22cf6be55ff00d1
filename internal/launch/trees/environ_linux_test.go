package trees

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// marked starts a process that has env and a mark, in a session of its own as Orla does:
// a look passes over the session of a test that runs in a container that it was not
// started in.
func marked(t *testing.T, env []string, mark string) (pid int) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env = Marked(env, "", mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return cmd.Process.Pid
}

// SPEC D2, S2: what a process says is its environment costs a look no more than the
// bound, however much it is, and the mark that Orla gives it is found all the same.
func TestAMarkIsFoundInAnEnvironmentBeyondTheBound(t *testing.T) {
	const mark = "an-instance.7"
	var env []string
	for name := range strings.SplitSeq("ABCDEFGHIJ", "") {
		env = append(env, name+"="+strings.Repeat("x", 100_000))
	}
	pid := marked(t, env, mark)
	var environs procfs.Environs
	l := &look{done: make(chan struct{})}
	l.everywhere("an-instance", nil, &environs)
	if got := l.marks[pid]; !slices.Equal(got, []string{mark}) {
		t.Errorf("the look found the marks %q, want %q", got, mark)
	}
	environ, err := environs.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	if want := 128 << 10; len(environ) != want {
		t.Errorf("%d bytes were read, want %d", len(environ), want)
	}
	if !Bears(environ, mark) {
		t.Error("the mark is not found")
	}
}

// SPEC S2: a look keeps no more of an environment than a few marks as long as Orla's own.
func TestALookKeepsFewMarks(t *testing.T) {
	const mark = "an-instance.7"
	pid := marked(t, nil, "an-instance.8/an-instance."+strings.Repeat("9", 10_000)+strings.Repeat("/an-instance.8", 1000))
	l := &look{done: make(chan struct{})}
	late := time.After(time.Minute)
	var environs procfs.Environs
	for len(l.marks[pid]) == 0 {
		l.everywhere("an-instance", nil, &environs)
		select {
		case <-late:
			t.Fatal("no look found a mark")
		default:
		}
	}
	if got := len(strings.Join(l.marks[pid], "")); got > 1000 {
		t.Errorf("a look keeps %d bytes of the marks of one process", got)
	}

	outer := strings.Repeat("another.1/", mostMarks)
	if Bears([]byte(MarkVariable+"="+outer+mark+"\x00"), mark) {
		t.Errorf("more than %d marks of one environment are looked at", mostMarks)
	}
	for _, environ := range []string{
		MarkVariable + "=" + mark + "\x00A=b\x00", "A=b\x00" + MarkVariable + "=" + mark, MarkVariable + "=another.1/" + mark + "\x00",
		"X" + MarkVariable + "=c\x00" + MarkVariable + "=" + mark + "\x00",
	} {
		if !Bears([]byte(environ), mark) || !Bears([]byte(environ), "an-instance.") {
			t.Errorf("no mark is found in %q", environ)
		}
	}
	for _, environ := range []string{"X" + MarkVariable + "=" + mark + "\x00", MarkVariable + "=" + mark + "1\x00", MarkVariable + "=\x00", ""} {
		if Bears([]byte(environ), mark) {
			t.Errorf("a mark is found in %q", environ)
		}
	}
}
