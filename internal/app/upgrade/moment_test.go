package upgrade

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/testing/testkit"
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
// machine does not have: as long as a client may take to answer. It does not wait for questions that are always open.
func TestQ1TheMomentOfAnUpgrade(t *testing.T) {
	const grace, answers = 10 * time.Second, time.Minute
	for name, c := range map[string]struct {
		asksUntil, longest, least, most time.Duration
		left                            int // questions at that moment
	}{
		"idle":                         {0, 0, 0, time.Second, 0},
		"calls always take long":       {0, time.Second, grace, grace + time.Second, 0},
		"and a question is answered":   {grace * 3 / 2, time.Second, grace * 3 / 2, grace*3/2 + time.Second, 0},
		"a question is answered":       {grace * 3 / 2, 0, grace * 3 / 2, grace*3/2 + time.Second, 0},
		"a question is answered late":  {answers - grace, 0, answers - grace, answers, 0},
		"a question is never answered": {time.Hour, 0, answers, answers + grace, 1},
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
					Web: listen.New(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), Calls: l, Grace: grace, Answers: answers,
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

// late is a call that asks its client something each time that requests have waited for it for long.
type late struct {
	load
	patience time.Duration
	since    time.Time // requests wait since then; zero if they do not
	waited   time.Duration
}

func (l *late) InFlight() int {
	if l.since.IsZero() {
		l.since = time.Now()
	}
	return 1
}

func (l *late) asked() (requests, waiting int) {
	if l.since.IsZero() || time.Since(l.since) < l.patience {
		return 0, 0
	}
	l.waited, l.since = l.waited+time.Since(l.since), time.Time{}
	return 1, 0
}

// SPEC N2: calls that ask something whenever requests wait for them make these wait for twice the grace at most, for as
// long as an upgrade may look for a moment.
func TestN2CallsThatAskAtTheMomentOfAnUpgrade(t *testing.T) {
	const grace = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		l := &late{patience: grace - time.Second}
		m := Moment{
			Web: listen.New(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), Calls: l, Grace: grace, Answers: time.Hour,
			Asked: l.asked, Answering: func() int { return 0 }, Ended: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
		}
		if _, err := m.Find(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !l.since.IsZero() {
			l.waited += time.Since(l.since)
		}
		if l.waited < grace || l.waited > 2*grace {
			t.Errorf("requests waited for %s", l.waited)
		}
	})
}

// SPEC Q1: a request that has begun to arrive is answered before an upgrade, also if all of the grace passes in which the
// process gets no processor.
func TestQ1ARequestThatArrivesAtTheMoment(t *testing.T) {
	var answered atomic.Int64
	web := listen.New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered.Add(1) }), slog.New(slog.DiscardHandler))
	defer web.Cut()
	if err := web.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(web.URL(), "http://"), "/mcp")
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\n"
	_, _ = io.WriteString(c, request+"\r\n"+request) // with the first one, the server reads what there is of the second one
	first, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Body.Close()
	l, looks := &load{}, 0
	m := Moment{
		Web: web, Calls: l, Grace: time.Nanosecond,
		Asked: func() (int, int) {
			if looks++; looks == 10 {
				_, _ = io.WriteString(c, "\r\n")
			}
			return 0, 0
		},
		Answering: l.InFlight, Ended: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
	}
	if _, err := m.Find(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := answered.Load(); n != 2 {
		t.Errorf("%d requests were answered; want 2", n)
	}
}

// SPEC N2: a client that does not read its answer makes an upgrade look for another moment, and no request wait.
func TestN2AnAnswerThatNobodyReadsAtTheMoment(t *testing.T) {
	const grace = 2 * time.Second
	ended := make(chan struct{})
	web := listen.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		listen.HeadersRead(r.Context(), false)
		_, _ = w.Write(make([]byte, 64<<20))
	}), slog.New(slog.DiscardHandler))
	defer web.Cut()
	if err := web.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(web.URL(), "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	testkit.Eventually(t, "the client lets the answer wait", func() bool { return web.Unread(longCall) == 1 })
	l := &load{}
	m := Moment{
		Web: web, Calls: l, Grace: grace, Answers: time.Hour, Asked: func() (int, int) { return 0, 0 },
		Answering: func() int { return 1 }, Ended: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
	}
	began, err := m.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited > grace/2 {
		t.Errorf("requests waited for %s", waited)
	}
	m.Answering = l.InFlight
	limited, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	m.Quiet(limited)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the answer is not given up")
	}
}
