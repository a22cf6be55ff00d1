package systemd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/systemd"
)

// journald is a socket that takes entries, as journald's does.
type journald struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newJournald(t *testing.T, path string) *journald {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &journald{t, conn, path}
}

// next reads one entry, from a file where it was passed as one.
func (j *journald) next() map[string]string {
	j.t.Helper()
	if err := j.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		j.t.Fatal(err)
	}
	entry, oob := make([]byte, 10<<20), make([]byte, 1<<10)
	n, oobn, _, _, err := j.conn.ReadMsgUnix(entry, oob)
	if err != nil {
		j.t.Fatal(err)
	}
	if oobn == 0 {
		return fields(j.t, entry[:n])
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		j.t.Fatal(err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		j.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "entry")
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
		j.t.Errorf("the file is not sealed: journald refuses it (%v)", err)
	}
	whole, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
	if err != nil {
		j.t.Fatal(err)
	}
	return fields(j.t, whole)
}

// fields parses the native protocol.
func fields(t *testing.T, entry []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for len(entry) > 0 {
		line, rest, ended := bytes.Cut(entry, []byte("\n"))
		if !ended {
			t.Fatalf("%q has no end", line)
		}
		name, value, short := bytes.Cut(line, []byte("="))
		if !short {
			size := binary.LittleEndian.Uint64(rest)
			value, rest = rest[8:8+size], rest[8+size+1:]
		}
		all[string(name)] = string(value)
		entry = rest
	}
	return all
}

// SPEC I1, K1: any value reaches the journal as it is.
func TestEntriesReachTheJournal(t *testing.T) {
	from := newJournald(t, filepath.Join(t.TempDir(), "socket"))
	to := systemd.NewJournal(from.path)
	for _, value := range []string{
		"", "one", "a=b", "two\nlines\n", "\n", "\xff\x00\x1b[31m", strings.Repeat("long ", 10), strings.Repeat("x\n", 16<<20), strings.Repeat("y", 1<<20),
	} {
		entry := systemd.AppendField(nil, "MESSAGE", value)
		entry = systemd.AppendField(entry, "ORLA_TOOL", "a")
		if n, err := to.Write(entry); n != len(entry) || err != nil {
			t.Fatalf("%.20q: %d, %v", value, n, err)
		}
		if got := from.next(); got["MESSAGE"] != value || got["ORLA_TOOL"] != "a" || len(got) != 2 {
			t.Errorf("%.20q came as %.40q", value, got)
		}
	}
}

func TestFieldNamesAreTheJournals(t *testing.T) {
	for name, want := range map[string]string{
		"MESSAGE": "MESSAGE", "orla_call_id": "ORLA_CALL_ID", "a.b-c d": "A_B_C_D", "_PID": "XPID", "9lives": "XLIVES", "é": "X_",
		strings.Repeat("n", 100): strings.Repeat("N", 64),
	} {
		if got := string(systemd.AppendField(nil, name, "v")); got != want+"=v\n" {
			t.Errorf("%q became %q; want %s", name, got, want)
		}
	}
}

func TestJournalThatIsNotThereIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	to := systemd.NewJournal(path)
	if to.Ready() {
		t.Error("it is ready")
	}
	if _, err := to.Write([]byte("MESSAGE=one\n")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, message := range []string{"first", "after it was started again"} {
		from := newJournald(t, path)
		if _, err := to.Write(systemd.AppendField(nil, "MESSAGE", message)); err != nil {
			t.Fatal(err)
		}
		if got := from.next()["MESSAGE"]; got != message {
			t.Errorf("got %q; want %q", got, message)
		}
		_ = from.conn.Close()
		_ = os.Remove(path)
	}
}

// A journald that does not read shows before anybody waits for it.
func TestJournalThatDoesNotReadIsNotReady(t *testing.T) {
	from := newJournald(t, filepath.Join(t.TempDir(), "socket"))
	to := systemd.NewJournal(from.path)
	sent := 0
	for ; to.Ready(); sent++ {
		if sent > 100_000 {
			t.Fatal("it is always ready")
		}
		if _, err := to.Write(systemd.AppendField(nil, "MESSAGE", fmt.Sprint(sent))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sent {
		if got := from.next()["MESSAGE"]; got != fmt.Sprint(i) {
			t.Fatalf("got %q; want %d", got, i)
		}
	}
	if sent == 0 || !to.Ready() {
		t.Errorf("after %d entries it is not ready again", sent)
	}
}
