package sessionlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SPEC Q2: a line of which only a part could be written does not spoil the next one.
func TestQ2HalfALine(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "sessions.log"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	file := l.changes.file
	l.changes.file = w
	if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	l.Follow("one", strings.Repeat("x", 1<<20)) // more than the pipe has room for
	if l.failed.IsZero() {
		t.Fatal("it could be written")
	}
	_ = w.Close()
	l.changes.file, l.failed = file, time.Time{}
	l.Begun("two", record())
	raw, err := os.ReadFile(l.changesPath(l.changes.number))
	if err != nil || !strings.HasPrefix(string(raw), "\n{") {
		t.Errorf("%q %v", raw, err)
	}
}
