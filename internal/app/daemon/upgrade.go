package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/orla-project/orla/internal/app/access"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/tracing"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/mcpbridge/conversation"
)

// checkFiles returns why a program would end after an upgrade, once the one before is gone: a file that the configuration names
// cannot be used.
func checkFiles(cfg *config.Loaded, environ []string) error {
	_, _, err := access.Tokens(cfg)
	if err == nil {
		_, err = wiring.ConsoleSecret(cfg)
	}
	if err == nil {
		_, err = wiring.Webhook(cfg)
	}
	if err == nil {
		_, _, err = tracing.Settings(cfg, environ)
	}
	if err != nil {
		return &exit.Error{Code: exit.Invalid, Err: err}
	}
	return nil
}

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

// givePatience bounds the time in which capsules are given.
const givePatience = 10 * time.Second

// keep has the next program take what was counted and logged.
func (s *server) keep(next *upgrade.Document) {
	next.Keep(upgrade.Counters, s.telemetry.Give(), s.log.Logger)
	next.Keep(upgrade.History, s.log.History().Give(), s.log.Logger)
}

// leave is runHTTP's end before another program is executed: what can go on without this one is given to it, and all
// else ends as at a stop. It reports false if nothing was begun.
func (s *server) leave(ctx context.Context, signals *signals, tree *tree, next *upgrade.Document) bool {
	lasting := context.WithoutCancel(ctx)
	grace := time.Duration(s.current().ShutdownGrace)
	moment := upgrade.Moment{
		Web: s.web, Calls: s.Supervisor, Asked: s.bridge.Asked, Answering: s.http.Answering,
		Ended: func() bool { return len(signals.end) > 0 }, Grace: grace, Answers: conversation.AnswerTime, Log: s.log.Logger,
	}
	asked, _ := s.bridge.Asked()
	s.notifier.Reloading()
	s.notifier.Extend(moment.Longest() + givePatience + 10*time.Second)
	s.log.Info("upgrading", "binary", next.Executes.Path, "in_flight", s.Supervisor.InFlight(), "asked", asked, "grace_ms", grace.Milliseconds())
	began, err := moment.Find(lasting)
	if err != nil {
		s.notifier.Ready(s.readiness().text)
		s.upgrades.Fail(next, err, s.log.Logger)
		return false
	}
	limited, end := context.WithDeadline(lasting, moment.Until(began))
	defer end()
	if moment.Quiet(limited) {
		end() // their clients cannot answer any more, or they have had the grace
	}
	s.Supervisor.Drain(limited)
	s.Shared.AwaitPassed(limited)
	s.http.CloseSessions()
	next.HTTP = s.web.End(lasting)
	s.control.Leave()
	tree.endFront() // no reload changes what is given
	giving, cancel := context.WithTimeout(lasting, givePatience)
	defer cancel()
	s.capsules = s.Supervisor.Give(giving)
	tree.endBack()
	next.Control = s.control.Given()
	next.Ended = len(signals.end) > 0
	next.StateKey = s.bridge.StateKey()
	s.upgrades.Next = next
	s.log.Info("executing", "binary", next.Executes.Path, "capsules", len(s.capsules), "connections", next.HTTP.Len(),
		"paused_ms", time.Since(began).Milliseconds())
	return true
}
