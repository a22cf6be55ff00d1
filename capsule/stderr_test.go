package capsule

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
			c.logStderr(1, []byte("a line"), 0)
		}
		time.Sleep(2 * tail.QuotaWindow)
		synctest.Wait()
		t.Logf("%d of %d lines are logged", got.log["stderr"], lines)
		if got.log["stderr"] != tail.QuotaLines || got.all["stderr"] != lines || got.lines != lines-tail.QuotaLines {
			t.Errorf("%d lines are logged, %d are in the history, %d are said to be missing", got.log["stderr"], got.all["stderr"], got.lines)
		}
		c.logStderr(1, []byte("later"), 0)
		c.logStderr(1, make([]byte, tail.QuotaBytes), 0)
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
