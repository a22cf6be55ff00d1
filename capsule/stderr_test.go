package capsule

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/tail"
	"github.com/orla-project/orla/manifest"
)

// shown counts the records of each message that a log shows, and all of them.
type shown struct {
	slog.Handler

	mu       sync.Mutex // guards what follows
	all, log map[string]int
	lines    int64 // that are said to be missing
}

func (s *shown) Enabled(context.Context, slog.Level) bool { return true }

func (s *shown) Handle(ctx context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[r.Message]++
	if !history.IsOnly(ctx) {
		s.log[r.Message]++
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "lines" {
			s.lines += a.Value.Int64()
		}
		return true
	})
	return nil
}

// SPEC S1: the log has a bounded part of what a capsule prints on stderr, and says how
// much is missing. The history has all of it, as far as it reaches.
func TestS1StderrIsLoggedWithABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 100_000
		got := &shown{all: map[string]int{}, log: map[string]int{}}
		c := &Capsule{settings: settings{tool: manifest.Tool{Name: "loud"}, log: slog.New(got)}}
		for range lines {
			c.logStderr(1, &tail.Buffer{}, []byte("a line"), 0)
		}
		time.Sleep(2 * tail.QuotaWindow)
		synctest.Wait()
		t.Logf("%d of %d lines are logged", got.log["stderr"], lines)
		if got.log["stderr"] != tail.QuotaLines || got.all["stderr"] != lines || got.lines != lines-tail.QuotaLines {
			t.Errorf("%d lines are logged, %d are in the history, %d are said to be missing", got.log["stderr"], got.all["stderr"], got.lines)
		}
		c.logStderr(1, &tail.Buffer{}, []byte("later"), 0)
		c.logStderr(1, &tail.Buffer{}, make([]byte, tail.QuotaBytes), 0)
		if got.log["stderr"] != tail.QuotaLines+1 {
			t.Errorf("%d lines are logged; want one more, and none that is too large", got.log["stderr"])
		}
		c.reportStderr()
		c.reportStderr()
		if got.lines != lines-tail.QuotaLines+1 || len(got.log) != 2 {
			t.Errorf("%d lines are said to be missing, by %v", got.lines, got.log)
		}
	})
}

// SPEC D10: the lines on stderr that explain a state are those of the process that it is
// about.
func TestD10StderrOfTheProcessThatIsSpokenOf(t *testing.T) {
	plan := func(n int) behaviour { return behaviour{says: fmt.Sprintf("line of %d", n), mute: true} }
	change := func(r *manifest.Runtime) { r.StartupTimeout, r.Restart.MaxFailures = time.Second, 3 }
	inBubble(t, plan, change, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		until(c, func(s *status) bool { return s.state == Stopped })
		if life := c.Life(); w.started.Load() != 3 || life.Stderr != "line of 3" {
			t.Errorf("after %d processes stderr is %q", w.started.Load(), life.Stderr)
		}
	})
}

// SPEC D7b: of a process that was to replace another and did not start, its own lines are
// told, and the other one's stay those of the capsule.
func TestD7bStderrOfAProcessThatDoesNotReplace(t *testing.T) {
	plan := func(n int) behaviour { return behaviour{says: fmt.Sprintf("line of %d", n), mute: n > 1} }
	change := func(r *manifest.Runtime) {
		r.HotLoad.Mode, r.StartupTimeout, r.Restart.MaxFailures = manifest.HotLoadReplace, time.Second, 1
	}
	inBubble(t, plan, change, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		until(c, func(s *status) bool { return s.state == Ready })
		err := c.Restart(t.Context())
		if text := fault.From(err).Reason; !strings.HasSuffix(text, "its last lines on stderr:\nline of 2") {
			t.Errorf("who asked for another process is told %q", text)
		}
		if got := c.stderr.Load().Short(); got != "line of 1" {
			t.Errorf("the last lines of the one that serves are %q", got)
		}
	})
}
