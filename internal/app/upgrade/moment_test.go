package upgrade

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/listen"
)

// load is what calls there are.
type load struct {
	questions atomic.Int64
	longest   time.Duration
}

func (l *load) InFlight() int           { return int(l.questions.Load()) }
func (l *load) Parked() int             { return 0 }
func (l *load) Longest() time.Duration  { return l.longest }
func (l *load) Older(time.Duration) int { return 0 }

// SPEC Q1: an upgrade waits for questions to clients for longer than for a moment in which no call takes long, which a busy
// machine does not have. It does not wait for questions that are always open.
func TestQ1TheMomentOfAnUpgrade(t *testing.T) {
	const grace = 10 * time.Second
	for name, c := range map[string]struct {
		asksUntil, longest, least, most time.Duration
		left                            int // questions at that moment
	}{
		"idle":                         {0, 0, 0, time.Second, 0},
		"calls always take long":       {0, time.Second, grace, grace + time.Second, 0},
		"and a question is answered":   {grace * 3 / 2, time.Second, grace * 3 / 2, grace*3/2 + time.Second, 0},
		"a question is answered":       {grace * 3 / 2, 0, grace * 3 / 2, grace*3/2 + time.Second, 0},
		"a question is never answered": {time.Hour, 0, 2 * grace, 3 * grace, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &load{longest: c.longest}
				if c.asksUntil > 0 {
					l.questions.Store(1)
					timer := time.AfterFunc(c.asksUntil, func() { l.questions.Store(0) })
					defer timer.Stop()
				}
				began := time.Now()
				m := Moment{
					Web: listen.New(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), Calls: l, Grace: grace,
					Asked:     func() (int, int) { n := int(l.questions.Load()); return n, n },
					Answering: l.InFlight, Ended: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
				}
				if _, err := m.Find(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("it was found after %s; want %s to %s", took, c.least, c.most)
				}
				if left := int(l.questions.Load()); left != c.left {
					t.Errorf("%d questions are open; want %d", left, c.left)
				}
			})
		})
	}
}
