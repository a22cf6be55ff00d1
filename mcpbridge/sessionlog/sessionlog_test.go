package sessionlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/testing/costtest"
)

var silent = slog.New(slog.DiscardHandler)

func open(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, time.Hour, 100, silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func record() *Record {
	return &Record{Caller: "ann", Says: json.RawMessage(`{"protocolVersion":"2025-06-18"}`)}
}

// SPEC Q2: what was kept is there again, whatever was written after it, also half a line.
func TestQ2KeepsWhatASessionHas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	l := open(t, path)
	l.Begun("one", record())
	l.SetLevel("one", "debug")
	l.Follow("one", "mem://a")
	l.Follow("one", "mem://b")
	l.Follow("one", "mem://a")
	l.Unfollow("one", "mem://b")
	l.Begun("two", record())
	l.Ended("two")
	l.Ended("never begun")
	if l.Earlier("one") != nil {
		t.Error("a session of this process is one of an earlier one")
	}
	l.Close()
	l.Begun("three", record()) // ignored
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), `"one"`) {
		t.Error("the file has the id of a session")
	}
	if err := os.WriteFile(path, append(raw, `{"id":"`...), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // Open writes the file again
		l = open(t, path)
		got := l.Earlier("one")
		if got == nil || got.Level != "debug" || !reflect.DeepEqual(got.Follows, map[string]bool{"mem://a": true}) || got.Caller != "ann" {
			t.Fatalf("%+v", got)
		}
		if l.Earlier("two") != nil || l.Earlier("three") != nil {
			t.Error("a session that has ended is there")
		}
		l.Close()
	}
}

// SPEC Q2: sessions that were not used for longer than session_timeout are over, and no more than max_sessions are kept.
func TestQ2TimeoutAndMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "sessions.log")
		l := open(t, path)
		l.Begun("old", record())
		l.Begun("used", record())
		time.Sleep(time.Hour)
		l.Used("used")
		for i := range 5 {
			time.Sleep(time.Second)
			l.Begun(fmt.Sprint(i), record())
		}
		l.Close()
		time.Sleep(NoteEvery)
		l = open(t, path)
		if l.Earlier("old") != nil || l.Earlier("used") == nil {
			t.Error("the timeout does not hold")
		}
		l.Forget(func(r *Record) bool { return time.Since(r.Used) > NoteEvery+2*time.Second })
		l.Close()
		l, err := Open(path, time.Hour, 2, silent)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for id, want := range map[string]bool{"used": false, "0": false, "1": false, "2": false, "3": true, "4": true} {
			if got := l.Earlier(id) != nil; got != want {
				t.Errorf("%s is there: %t", id, got)
			}
		}
	})
}

// SPEC S1, S2: the file does not grow with what sessions do, and a large session is not kept.
func TestQ2FileIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	l := open(t, path)
	l.Begun("one", record())
	uri := "mem://" + strings.Repeat("x", 4000)
	for range 300 {
		l.Follow("one", uri)
		l.Unfollow("one", uri)
	}
	l.Begun("large", &Record{Says: json.RawMessage(`"` + strings.Repeat("x", maxRecord) + `"`)})
	info, err := os.Stat(path)
	if err != nil || info.Size() > 2*slack {
		t.Errorf("%v %v", info, err)
	}
	l.Close()
	l = open(t, path)
	if got := l.Earlier("one"); got == nil || len(got.Follows) > 0 {
		t.Errorf("%+v", got)
	}
	if l.Earlier("large") != nil {
		t.Error("a session is kept that is larger than maxRecord")
	}
}

// SPEC Q2: one process keeps its sessions in a file at a time, and a file that cannot be written is said once.
func TestQ2OneProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	l := open(t, path)
	if _, err := Open(path, time.Hour, 100, silent); err == nil {
		t.Error("two processes use one file")
	}
	var said strings.Builder
	l.log = slog.New(slog.NewTextHandler(&said, nil))
	_ = l.file.Close() // so that writing fails
	l.Begun("one", record())
	l.Begun("two", record())
	if n := strings.Count(said.String(), "level=WARN"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
}

// SPEC S1: to read what many sessions, or one, have done costs in proportion to it.
func TestS1ReadingSessions(t *testing.T) {
	for name, write := range map[string]func(l *Log, n int){
		"sessions": func(l *Log, n int) {
			for i := range n {
				l.Begun(fmt.Sprint(i), record())
			}
		},
		"resources of one": func(l *Log, n int) {
			l.Begun("one", record())
			for i := range n {
				l.Follow("one", fmt.Sprintf("mem://%d", i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 1000, func(n int) func() {
				path := filepath.Join(t.TempDir(), "sessions.log")
				l, err := Open(path, time.Hour, n, silent)
				if err != nil {
					t.Fatal(err)
				}
				write(l, n)
				l.Close()
				return func() { _, _ = read(path) }
			})
		})
	}
}
