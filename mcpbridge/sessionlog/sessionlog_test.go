package sessionlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
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
	raw, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), `"one"`) {
		t.Error("the file has the id of a session")
	}
	if err := os.WriteFile(path+".1", append(raw, `{"id":"`...), 0o600); err != nil {
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
	for range 2 { // what came while it was written is written the next time
		l.writing.Wait()
		l.Used("one")
	}
	l.Begun("large", &Record{Says: json.RawMessage(`"` + strings.Repeat("x", maxRecord) + `"`)})
	l.Close()
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 3*slack {
		t.Errorf("%d bytes in %v", size, files)
	}
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
	_ = l.changes.file.Close() // so that writing fails
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
				return func() {
					if err := readInto(map[digest]*Record{}, path+".1"); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// SPEC Q2: a session that has ended does not come back, also if its end could not be written at that moment.
func TestQ2AFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "sessions.log")
		l := open(t, path)
		for _, id := range []string{"stays", "ends", "ends later"} {
			l.Begun(id, record())
		}
		whole := l.changes.file
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("no full device: %v", err)
		}
		l.changes.file = full
		l.Begun("lost", record())
		l.Ended("ends")
		time.Sleep(2 * again)
		l.Ended("ends later") // it is tried again, and fails
		l.changes.file = whole
		time.Sleep(2 * again)
		l.Begun("new", record())
		l.Follow("stays", "mem://a")
		l.Close()
		_ = full.Close()
		l = open(t, path)
		for id, want := range map[string]bool{"stays": true, "ends": false, "ends later": false, "lost": false, "new": true} {
			if got := l.Earlier(id) != nil; got != want {
				t.Errorf("%s is there: %t", id, got)
			}
		}
		full, _ = os.OpenFile("/dev/full", os.O_WRONLY, 0)
		_ = l.changes.file.Close()
		l.changes.file = full
		l.Ended("stays")
		l.Close()
		if l = open(t, path); l.Earlier("stays") != nil || l.Earlier("new") != nil {
			t.Error("sessions are there although it could not be written which had ended")
		}
	})
}

// SPEC Q2, N2: of too many sessions, the caller with the most loses its oldest, and nobody else any.
func TestQ2TooManySessions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	l := open(t, path)
	for caller, n := range map[string]int{"ann": 95, "bob": 5, "eve": 30} {
		for i := range n {
			l.Begun(fmt.Sprintf("%s%d", caller, i), &Record{Caller: caller, Says: record().Says})
		}
	}
	l.Close()
	for _, c := range []struct{ most, ann, bob, eve int }{{100, 65, 5, 30}, {50, 22, 5, 22}, {9, 3, 3, 3}} {
		l, err := Open(path, time.Hour, c.most, silent)
		if err != nil {
			t.Fatal(err)
		}
		for caller, want := range map[string]int{"ann": c.ann, "bob": c.bob, "eve": c.eve} {
			n := 0
			for i := range 95 {
				if l.Earlier(fmt.Sprintf("%s%d", caller, i)) != nil {
					n++
				}
			}
			if n != want {
				t.Errorf("of %d sessions %s keeps %d, not %d", c.most, caller, n, want)
			}
		}
		if l.Earlier("ann0") != nil || l.Earlier("bob4") == nil {
			t.Error("ann keeps its oldest session, or bob does not keep its newest")
		}
		l.Close()
	}
}

// SPEC Q2, S2: what is in place of a file cannot keep Orla from starting, and long lines are not kept in memory.
func TestQ2OddFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no FIFOs here: %v", err)
	}
	if _, err := Open(path, time.Hour, 100, silent); err == nil || !strings.Contains(err.Error(), "FIFO") {
		t.Errorf("a FIFO: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l := open(t, path)
	l.Begun("one", record())
	uri := strings.Repeat("&", 4<<10)
	l.Follow("one", uri)
	l.Follow("one", "mem://a")
	l.Unfollow("one", "mem://a")
	l.Close()
	text := slices.Concat([]byte("null\n\x00\xff\n{}\n"), []byte(strings.Repeat("x", 3*maxLine)), []byte("\n"))
	if err := os.WriteFile(path+".7", text, 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, path)
	if got := l.Earlier("one"); got == nil || !reflect.DeepEqual(got.Follows, map[string]bool{uri: true}) {
		t.Errorf("%+v", got)
	}
}

// SPEC Q2, S2: changes that come while all sessions are written are not lost, and do not wait for that.
func TestQ2ChangesWhileGathering(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.log")
	l := open(t, path)
	l.mu.Lock()
	l.needed = -slack // each change has all sessions written again
	l.mu.Unlock()
	const n = 200
	for i := range n {
		l.Begun(fmt.Sprint(i), record())
		if i%2 == 1 {
			l.Ended(fmt.Sprint(i - 1))
		}
		l.mu.Lock()
		l.needed = -slack
		l.mu.Unlock()
	}
	l.Close()
	l = open(t, path)
	for i := range n {
		if got := l.Earlier(fmt.Sprint(i)) != nil; got != (i%2 == 1) {
			t.Errorf("%d is there: %t", i, got)
		}
	}
	if files, _ := filepath.Glob(path + ".*[0-9]"); len(files) != 1 {
		t.Errorf("files are left: %v", files)
	}
}
