package logging

import (
	"os"
	"path/filepath"
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
