package logging

import (
	"bytes"
	"strings"
	"testing"
)

// traceback writes the log of a capsule that prints a traceback and crashes.
func traceback(l *Log) {
	log := l.With("tool", "stats")
	log.Info("stderr", "stream", "stderr", "pid", 7, "text", "Traceback (most recent call last):")
	log.Info("stderr", "stream", "stderr", "pid", 7, "text", `  File "main.py", line 2`+"\x1b[31m")
	log.Warn("state", "from", "STARTING", "to", "CRASHED", "reason", "it exited with code 1", "pid", 7, "next_start_ms", 500,
		"stderr", "Traceback (most recent call last):\n  File \"main.py\", line 2")
	log.Info("call", "ok", false, "reason", "stats is CRASHED; its last lines on stderr:\nTraceback (most recent call last):")
}

// SPEC D5, I1: for people a traceback is in the log once, as it was printed. In JSON the
// line of the state has it too.
func TestD5ATracebackIsShownOnceAsPrinted(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, "")
	l.Configure("info", Pretty, nil)
	traceback(l)
	shown := out.String()
	want := "stats | Traceback (most recent call last):\nstats |   File \"main.py\", line 2\\x1b[31m\n"
	if !strings.HasPrefix(shown, want) {
		t.Errorf("the log begins with %q, want %q", shown, want)
	}
	if n := strings.Count(shown, "Traceback"); n != 1 {
		t.Errorf("the traceback is there %d times, want once:\n%s", n, shown)
	}
	for _, want := range []string{
		"WRN state tool=stats from=STARTING to=CRASHED reason=\"it exited with code 1\" pid=7 next_start_ms=500\n",
		"INF call tool=stats ok=false reason=\"stats is CRASHED; its last lines on stderr: …\"\n",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the log has no %q:\n%s", want, shown)
		}
	}

	out.Reset()
	l.Configure("info", JSON, nil)
	traceback(l)
	if n := strings.Count(out.String(), "Traceback"); n != 3 {
		t.Errorf("in JSON the traceback is there %d times, want 3:\n%s", n, &out)
	}
}

// SPEC I1: where lines of stderr are not shown, they follow on the state.
func TestI1AStateHasTheStderrThatWasNotShown(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, "")
	l.Configure("warn", Pretty, nil)
	traceback(l)
	_, below, _ := strings.Cut(out.String(), "\n")
	if want := "stats | Traceback (most recent call last):\nstats |   File \"main.py\", line 2\n"; below != want {
		t.Errorf("below the state there is %q, want %q", below, want)
	}
}

// SPEC J1, D9: a capsule that nothing but a change starts again is said to wait for one.
func TestD9ACrashThatWaitsForAChange(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, "")
	l.Configure("info", Pretty, nil)
	stopped := []any{"tool", "stats", "from", "CRASHED", "to", "STOPPED", "reason", "it exited with code 1"}
	l.Warn("state", stopped...)
	l.Warn("state", append(stopped, "next_start_ms", 500)...) // a remote server: Orla tries again
	l.Info("state", "tool", "stats", "from", "STOPPING", "to", "STOPPED", "reason", "stopped by an operator")
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, line[len("15:04:05 "):len(line)-1])
	}
	want := []string{
		`WRN crashed; waiting for a change tool=stats to=STOPPED reason="it exited with code 1"`,
		`WRN state tool=stats from=CRASHED to=STOPPED reason="it exited with code 1" next_start_ms=500`,
		`INF state tool=stats from=STOPPING to=STOPPED reason="stopped by an operator"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// SPEC I1: every level has its word for people.
func TestI1TheLevelFatalForPeople(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, "")
	l.Configure("info", Pretty, nil)
	l.Log(t.Context(), LevelFatal, "failed")
	if !strings.Contains(out.String(), " FTL failed") {
		t.Errorf("the log has %q", &out)
	}
}
