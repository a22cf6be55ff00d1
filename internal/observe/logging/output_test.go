package logging

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// TestI1LinesOfCallsAreWrittenTogether: a line that comes alone is written at
// once, and those of a crowd within a millisecond, in their order (SPEC I1).
func TestI1LinesOfCallsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		o := newOutput(file, "")
		defer func() { o.stderr.end(); synctest.Wait() }()
		say := func(line string) {
			t.Helper()
			if err := o.writeSoon([]byte(line)); err != nil {
				t.Error(err)
			}
		}
		wrote := func(want string) {
			t.Helper()
			if got := testkit.ReadFile(t, file.Name()); got != want {
				t.Errorf("written: %q; want %q", got, want)
			}
		}
		say("1\n")
		wrote("1\n")
		<-time.After(crowd / 2)
		say("2\n")
		<-time.After(crowd / 2)
		say("3\n")
		<-time.After(2 * crowd) // one that comes late still has its turn
		say("4\n")
		wrote("1\n")
		<-time.After(linger - 5*crowd/2 + time.Microsecond)
		synctest.Wait()
		wrote("1\n2\n3\n4\n")
		<-time.After(2 * crowd)
		say("5\n")
		wrote("1\n2\n3\n4\n5\n")
	})
}

// blockedWriter takes nothing until it is released.
type blockedWriter struct{ release chan struct{} }

func (w blockedWriter) Write(line []byte) (int, error) {
	<-w.release
	return len(line), nil
}

// SPEC I1: what a file has dropped is told of, also when another file takes its place first.
func TestI1LinesThatAFileDroppedAreToldOfAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(io.Discard, "")
		stuck := blockedWriter{make(chan struct{})}
		o.file = newLogWriter(stuck, nil)
		for range 3 { // the first one waits for its reader, and those after it do not
			if _, err := o.Write([]byte("line\n")); err != nil {
				t.Error(err)
			}
		}
		o.use(nil)
		news := o.news(time.Now())
		if len(news) != 1 || !strings.Contains(news[0].Message, "dropped") {
			t.Fatalf("the news is %v", news)
		}
		news[0].Attrs(func(a slog.Attr) bool {
			if a.Key == "lines" && a.Value.Int64() != 2 {
				t.Errorf("%v lines were dropped, want 2", a.Value)
			}
			return true
		})
		if again := o.news(time.Now()); len(again) != 0 {
			t.Errorf("it is told again: %v", again)
		}
		close(stuck.release)
		o.stderr.end()
	})
}
