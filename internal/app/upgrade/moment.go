package upgrade

import (
	"context"
	"log/slog"
	"time"

	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/call/pace"
)

const (
	quietPause = 2 * time.Millisecond
	// longCall is from when on a call takes long.
	longCall = 100 * time.Millisecond
)

// Moment is when no request begins any more, so that another program can be executed.
type Moment struct {
	Web   *listen.Server
	Calls interface {
		InFlight() int
		Parked() int // of those in flight; they wait for an approval, and end at once when calls are refused
		Longest() time.Duration
		Older(than time.Duration) int // of those that do not wait for an approval
	}
	Grace time.Duration // for the calls that have begun before
	// Answers is how long a client may take to answer a question. Requests that have asked one are waited for as long as
	// that, and twice the Grace at least. No other request waits for them until then.
	Answers time.Duration
	// Asked returns how many requests in flight have asked their clients something, and how many of them are calls that
	// wait for an answer.
	Asked     func() (requests, waiting int)
	Answering func() int  // how many requests are being answered
	Ended     func() bool // there is no time: Orla is to end
	Log       *slog.Logger
}

// Find waits for a good moment, and returns since when requests wait. It is when no call takes long, since all others
// would wait for it, and no request in flight has asked its client something: the answer would not be read. When one that
// has begun before asks something after all, or takes long, requests begin again, until they have waited for the Grace
// all in all. After the Grace calls may take long: on a machine that has too much to do, all of them do. Those that have
// asked something are waited for until Answers are over. No request waits for a call that has had all of the Grace, such
// as one that nobody answers, or for an answer that its client has not read for as long (SPEC N2). After an error all goes on as before.
func (m *Moment) Find(ctx context.Context) (began time.Time, err error) {
	asking, cancel := context.WithTimeout(ctx, m.patience())
	defer cancel()
	serving, cancel := context.WithTimeout(asking, m.Grace)
	defer cancel()
	later := func() bool {
		asked, _ := m.Asked()
		switch {
		case m.Ended() || asking.Err() != nil:
			return false
		case serving.Err() != nil:
			return asked > 0
		}
		return asked > 0 || m.Calls.Longest() > longCall || m.Web.Unread(longCall) > 0
	}
	for paused := time.Duration(0); ; paused += time.Since(began) {
		for later() && pace.Sleep(asking, quietPause) {
		}
		began = time.Now()
		if err := m.Web.Pause(); err != nil {
			return began, err
		}
		m.Web.Hold()
		limited, end := context.WithDeadline(ctx, m.Until(began))
		again := m.quiet(limited, func() bool { return paused+time.Since(began) < m.Grace && later() })
		if end(); !again {
			return began, nil
		}
		if err := m.Web.Resume(ctx); err != nil {
			m.Log.Error("not all sockets can be used any more", "err", err)
		}
	}
}

// patience bounds how long Find looks for a moment without questions.
func (m *Moment) patience() time.Duration { return max(2*m.Grace, m.Answers) }

// Longest is how long Find, and what follows until another program is executed, take at most.
func (m *Moment) Longest() time.Duration { return m.patience() + 2*m.Grace }

// Until returns how long requests may wait that do so since began.
func (m *Moment) Until(began time.Time) time.Time { return began.Add(m.Grace) }

// Quiet waits until ctx ends or no request is being answered, but for calls that wait for an approval, or for an answer
// of their client, or have had all of the grace. It reports whether there are such as wait for a client or have had it.
// The connections of clients that have not read their answer in all of the grace are closed.
func (m *Moment) Quiet(ctx context.Context) (left bool) {
	m.quiet(ctx, func() bool { return false })
	m.Web.CutUnread(m.Grace)
	return m.stuck() > 0
}

// stuck returns how many calls are not waited for, beside those that wait for an approval.
func (m *Moment) stuck() int {
	_, waiting := m.Asked()
	return max(waiting, m.Calls.Older(m.Grace)) // a call may be both
}

// quiet waits, and reports true if later did so before. When ctx ends, it still waits for requests that have begun to
// arrive: this process may have had no processor, and Looks has a limit of its own.
func (m *Moment) quiet(ctx context.Context, later func() bool) bool {
	const sure = 2 // looks in a row: a call goes from one count to the next
	asks := 1      // before the first look
	for quiet := 0; quiet < sure; quiet++ {
		if !pace.Sleep(ctx, quietPause) && (asks == 0 || !pace.Sleep(context.WithoutCancel(ctx), quietPause)) {
			return false
		}
		if later() {
			return true
		}
		parked := m.Calls.Parked() + m.stuck()
		var answers int
		asks, answers = m.Web.Looks()
		if asks > 0 || max(answers, m.Answering())-m.Web.Unread(m.Grace) > parked || m.Calls.InFlight() > parked {
			quiet = -1
		}
	}
	return false
}
