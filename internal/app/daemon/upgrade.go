package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch/carry"
)

// upgrades are the upgrades of this process.
type upgrades struct {
	program upgrade.Program
	asked   chan *upgrade.Document // holds one that is to be made

	busy   sync.Mutex        // held during a check
	mu     sync.Mutex        // guards the fields that follow
	number int               // that were made
	failed string            // why the last one was not; "" if it was
	next   *upgrade.Document // what is executed when all has stopped; nil for nothing
}

// refusedUpgrade is the error of an upgrade that changed nothing.
func refusedUpgrade(format string, args ...any) error {
	return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf(format, args...), Hint: "nothing was changed; this Orla serves on"}
}

// Upgrade implements control.Backend.
func (o operations) Upgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	return o.prepareUpgrade(ctx, binary)
}

// prepareUpgrade checks a binary, and has it executed soon. "" is the file that this program was started from.
func (s *server) prepareUpgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	if !s.upgrades.busy.TryLock() {
		return control.Upgrade{}, refusedUpgrade("an upgrade is under way already")
	}
	defer s.upgrades.busy.Unlock()
	next, said, err := s.checkBinary(ctx, binary)
	if err == nil && len(s.upgrades.asked) > 0 {
		err = errors.New("an upgrade is under way already")
	}
	if err != nil {
		s.upgrades.mu.Lock()
		s.upgrades.failed = err.Error()
		s.upgrades.mu.Unlock()
		s.log.Error("not upgraded; this program serves on", "binary", cmp.Or(binary, s.upgrades.program.Path), "err", err)
		return control.Upgrade{}, refusedUpgrade("%v", err)
	}
	s.upgrades.mu.Lock()
	s.upgrades.failed = ""
	s.upgrades.mu.Unlock()
	s.upgrades.asked <- next // it has room
	return control.Upgrade{Version: said.Version, Number: next.Number}, nil
}

// checkBinary asks a binary whether it can go on from here, and returns the begin of the document for it.
func (s *server) checkBinary(ctx context.Context, binary string) (*upgrade.Document, upgrade.Answer, error) {
	var said upgrade.Answer
	cfg := s.current()
	if err := carry.Possible(); err != nil {
		return nil, said, fmt.Errorf("this process cannot execute another binary: %w", err)
	}
	switch {
	case s.http == nil:
		return nil, said, errors.New("an Orla on stdin and stdout cannot be upgraded: its client would have to begin again")
	case cfg.Only != "":
		return nil, said, errors.New("orla dev cannot be upgraded; start it again")
	case binary != "" && !filepath.IsAbs(binary):
		return nil, said, fmt.Errorf("%s is not an absolute path", binary)
	}
	s.upgrades.mu.Lock()
	next := upgrade.New(s.upgrades.number+1, s.upgrades.program, binary)
	s.upgrades.mu.Unlock()
	said, err := next.Ask(ctx, s.Launcher.Launcher())
	return next, said, err
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
		s.upgrades.mu.Lock()
		s.upgrades.failed = err.Error()
		s.upgrades.mu.Unlock()
		s.notifier.Ready(s.readiness().text)
		s.log.Error("not upgraded; this program serves on", "binary", next.Executes.Path, "err", err)
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
	s.upgrades.next = next
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

// tellBefore logs how this program came to run, if another one has run in this process.
func (s *server) tellBefore(d *upgrade.Document) {
	if d == nil {
		return
	}
	s.upgrades.number, s.upgrades.failed = d.Number, d.Failed
	if d.Failed != "" {
		s.log.Error("not upgraded; this program serves on", "binary", d.Executes.Path, "err", d.Failed)
		return
	}
	s.log.Info("upgraded", "from", d.From, "version", version.Version(), "number", d.Number)
}
