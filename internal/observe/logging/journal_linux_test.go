package logging

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// journald is a socket that takes entries as journald's does.
func journald(t *testing.T) (conn *net.UnixConn, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, path
}

// entry reads one entry; nil when there is none for a while.
func entry(t *testing.T, conn *net.UnixConn, wait time.Duration) map[string]string {
	t.Helper()
	raw := make([]byte, 1<<20)
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(raw)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for rest := raw[:n]; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		name, value, short := bytes.Cut(line, []byte("="))
		if !short {
			size := binary.LittleEndian.Uint64(after)
			value, after = after[8:8+size], after[8+size+1:]
		}
		all[string(name)] = string(value)
		rest = after
	}
	return all
}

func journalLog(stderr *bytes.Buffer, path string) *Log {
	l := New(stderr, path)
	l.Configure("debug", Journal, nil)
	return l
}

// SPEC K1, I1: in the journal each key is a field of its own, as it is, and the
// message is one line that a terminal can show.
func TestK1TheJournalHasFields(t *testing.T) {
	conn, path := journald(t)
	var stderr bytes.Buffer
	l := journalLog(&stderr, path)
	l.Info("state", "tool", "a", "from", "READY", "to", "CRASHED", "reason", "it exited with code 1", "pid", 12)
	got := entry(t, conn, testkit.Patience)
	for name, want := range map[string]string{
		"MESSAGE": `state tool=a from=READY to=CRASHED reason="it exited with code 1" pid=12`, "PRIORITY": "6", "SYSLOG_IDENTIFIER": "orla",
		"ORLA_MSG": "state", "ORLA_TOOL": "a", "ORLA_FROM": "READY", "ORLA_TO": "CRASHED", "ORLA_REASON": "it exited with code 1", "ORLA_PID": "12",
	} {
		if got[name] != want {
			t.Errorf("%s is %q; want %q", name, got[name], want)
		}
	}
	if len(got) != 10 {
		t.Errorf("the fields are %q", got)
	}

	nasty := "one\ntwo\x1b[2J\u009b\xff"
	l.With("tool", "b").WithGroup("g").Error("stderr", "text", nasty, "err", errors.New("no"), "list", []string{"<a>", "b"}, "for", time.Second)
	got = entry(t, conn, testkit.Patience)
	for name, want := range map[string]string{
		"MESSAGE":  `stderr tool=b g.text="one\ntwo\x1b[2J\u009b\xff" g.err=no g.list="[\"<a>\",\"b\"]" g.for=1s`,
		"PRIORITY": "3", "ORLA_TOOL": "b", "ORLA_G_TEXT": nasty, "ORLA_G_ERR": "no", "ORLA_G_LIST": `["<a>","b"]`, "ORLA_G_FOR": "1s",
	} {
		if got[name] != want {
			t.Errorf("%s is %q; want %q", name, got[name], want)
		}
	}
	for level, want := range map[slog.Level]string{slog.LevelDebug: "7", slog.LevelInfo: "6", slog.LevelWarn: "4", slog.LevelError: "3", LevelFatal: "2"} {
		l.Log(t.Context(), level, "x")
		if got := entry(t, conn, testkit.Patience)["PRIORITY"]; got != want {
			t.Errorf("the priority of %s is %s; want %s", level, got, want)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("on stderr: %q", &stderr)
	}
	if got := l.History().Last(history.Query{Tools: []string{"b"}}); len(got) != 1 {
		t.Errorf("the history has %d lines of b; want 1", len(got))
	}
}

// SPEC K1: where there is no socket, journald is told the severity on stderr.
func TestK1WithoutASocketTheSeverityIsAPrefix(t *testing.T) {
	var stderr bytes.Buffer
	l := journalLog(&stderr, filepath.Join(t.TempDir(), "absent"))
	for _, want := range []struct {
		level  slog.Level
		prefix string
	}{{slog.LevelDebug, "<7>"}, {slog.LevelInfo, "<6>"}, {slog.LevelWarn, "<4>"}, {slog.LevelError, "<3>"}, {LevelFatal, "<2>"}} {
		stderr.Reset()
		l.Log(t.Context(), want.level, "state", "tool", "a")
		line, prefixed := strings.CutPrefix(stderr.String(), want.prefix)
		var content map[string]any
		if err := json.Unmarshal([]byte(line), &content); err != nil || !prefixed || content["tool"] != "a" {
			t.Errorf("%s: %q (%v)", want.level, &stderr, err)
		}
	}
}

// SPEC I1: a journald that does not read does not stop Orla; when it reads
// again, the log says how many lines are missing.
func TestI1JournalThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	conn, path := journald(t)
	var stderr bytes.Buffer
	l := journalLog(&stderr, path)
	const lines = 5000
	for i := range lines { // if each waited for its reader, it would be an hour
		l.Info("line", "i", i)
	}
	sent, got, lost := lines, 0, 0
	testkit.Eventually(t, "each line came, or was told of as lost", func() bool {
		l.Info("line")
		sent++
		for e := entry(t, conn, 10*time.Millisecond); e != nil; e = entry(t, conn, 10*time.Millisecond) {
			if e["ORLA_MSG"] == "line" {
				got++
				continue
			}
			var n int
			if _, err := fmt.Sscan(e["ORLA_LINES"], &n); err != nil {
				t.Fatalf("%q: %v", e, err)
			}
			lost += n
		}
		return got+lost == sent && lost > 0
	})
	if stderr.Len() > 0 {
		t.Errorf("on stderr: %.200q", &stderr)
	}
}
