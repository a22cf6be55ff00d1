package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/call/pace"
)

// Upgrade implements control.Backend.
func (o operations) Upgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	return o.prepareUpgrade(ctx, binary)
}

// prepareUpgrade checks a binary, and has it executed soon. "" is the file that this program was started from.
func (s *server) prepareUpgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	var cannot error
	switch {
	case s.http == nil:
		cannot = errors.New("an Orla on stdin and stdout cannot be upgraded: its client would have to begin again")
	case s.current().Only != "":
		cannot = errors.New("orla dev cannot be upgraded; start it again")
	}
	return s.upgrades.Prepare(ctx, s.Launcher.Launcher(), binary, cannot, s.log.Logger)
}

// follow is an upgrade as the reason of an end.
type follow struct{ *upgrade.Document }

func (f follow) Error() string { return "an upgrade to " + f.Executes.Path }

const (
	quietPause = 2 * time.Millisecond
	// givePatience bounds the time in which capsules are given.
	givePatience = 10 * time.Second
	// lastPatience bounds the time in which connections whose answer was written end.
	lastPatience = 500 * time.Millisecond
)

// leave is runHTTP's end before another program is executed: what can go on without this one is given to it, and all
// else ends as at a stop. It reports false if nothing was begun.
func (s *server) leave(ctx context.Context, signals *signals, tree *tree, next *upgrade.Document) bool {
	began := time.Now()
	lasting := context.WithoutCancel(ctx)
	grace := time.Duration(s.current().ShutdownGrace)
	s.notifier.Reloading()
	s.notifier.Extend(grace + givePatience + 10*time.Second)
	if err := s.web.Pause(); err != nil {
		s.notifier.Ready(s.readiness().text)
		s.upgrades.Fail(next, err, s.log.Logger)
		return false
	}
	s.log.Info("upgrading", "binary", next.Executes.Path, "in_flight", s.Supervisor.InFlight(), "grace_ms", grace.Milliseconds())
	s.web.Hold()
	limited, cancel := context.WithTimeout(lasting, grace)
	defer cancel()
	s.awaitQuiet(limited)
	s.Supervisor.Drain(limited)
	s.http.CloseSessions()
	last, cancel := context.WithTimeout(lasting, lastPatience)
	defer cancel()
	for s.web.Open() > 0 && pace.Sleep(last, quietPause) {
	}
	s.web.Cut()
	next.HTTP = s.web.Give()
	s.control.Leave()
	tree.endFront() // no reload changes what is given
	giving, cancel := context.WithTimeout(lasting, givePatience)
	defer cancel()
	s.capsules = s.Supervisor.Give(giving)
	tree.endBack()
	next.Control = s.control.Given()
	next.Ended = len(signals.end) > 0
	s.upgrades.Next = next
	s.log.Info("executing", "binary", next.Executes.Path, "capsules", len(s.capsules), "connections", len(next.HTTP.Conns),
		"paused_ms", time.Since(began).Milliseconds())
	return true
}

// awaitQuiet waits until ctx ends or no request is being answered, but for calls that wait for an approval. Nothing new
// begins any more.
func (s *server) awaitQuiet(ctx context.Context) {
	const sure = 2 // looks in a row: a request goes from one count to the next
	for quiet := 0; quiet < sure && pace.Sleep(ctx, quietPause); quiet++ {
		parked := s.Supervisor.Parked()
		if s.web.Asking() > 0 || s.http.Answering() > parked || s.Supervisor.InFlight() > parked {
			quiet = -1
		}
	}
}
