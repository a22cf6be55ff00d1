package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// diskful is a file on a disk that is full at times.
type diskful struct {
	bytes.Buffer
	room int // -1 for any
}

func (d *diskful) Write(p []byte) (int, error) {
	if d.room < 0 {
		return d.Buffer.Write(p)
	}
	if len(p) <= d.room {
		d.room -= len(p)
		return d.Buffer.Write(p)
	}
	n, _ := d.Buffer.Write(p[:d.room])
	d.room = 0
	return n, errors.New("no space left")
}

// A line that did not fit is whole on stderr; the lines after it are whole in
// the file, which says how many are missing.
func TestFullLogFileIsWrittenAgain(t *testing.T) {
	var stderr bytes.Buffer
	l := New(&stderr, "")
	disk := &diskful{room: 200}
	l.out.file = newLogWriter(disk, nil)
	for i := range 4 {
		l.Info("line", "i", i)
	}
	disk.room = -1
	for i := range 2 {
		l.Info("line", "i", 4+i)
	}
	l.out.file.end()
	if got := strings.Count(stderr.String(), `"msg":"line"`); got < 2 || !strings.Contains(stderr.String(), "log_file cannot be written") {
		t.Errorf("stderr has %q", &stderr)
	}
	whole := 0
	for raw := range strings.Lines(disk.String()) {
		if json.Valid([]byte(raw)) {
			whole++
		}
	}
	if torn := strings.Count(disk.String(), "\n") - whole; torn != 1 || !strings.Contains(disk.String(), `can be written again`) || !strings.Contains(disk.String(), `"i":5`) {
		t.Errorf("the file has %q", disk)
	}
}

// SPEC I1: a file that ends with a part of a line, be it of a disk that was full
// before a SIGHUP or of an Orla that was killed, swallows none of the lines after it.
func TestI1LinesAfterATornOneAreWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.log")
	const torn = `{"time":"2026-11-22T04:58:04.87`
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	out := newOutput(io.Discard, "")
	for _, line := range []string{"first\n", "second\n"} {
		file, err := OpenFile(path) // anew for each line, as SIGHUP has it
		if err != nil {
			t.Fatal(err)
		}
		out.use(file)
		if _, err := out.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	out.use(nil)
	if got, want := testkit.ReadFile(t, path), torn+"\nfirst\nsecond\n"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}

// SPEC I1: the reader of a FIFO that stops reading stops nobody either.
func TestI1LogFileThatIsNotReadStopsNobody(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0) // and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := New(&bytes.Buffer{}, "")
	l.Configure("info", JSON, file)
	for range 5000 { // more than a pipe has room for
		l.Info("line", "text", strings.Repeat("x", 100))
	}
	l.Configure("info", JSON, nil)
}
