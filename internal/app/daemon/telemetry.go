package daemon

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/recorded"
	"github.com/orla-project/orla/internal/app/tracing"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/telemetry"
)

// newTelemetry joins metrics and traces with the sources of their values.
func (s *server) newTelemetry() *telemetry.Telemetry {
	t := telemetry.New(telemetry.Options{
		Tools:    func() []string { return peer.NamesOf(s.Supervisor.Catalog().Tools) },
		Lives:    s.Supervisor.Lives,
		Usage:    s.usage,
		Own:      recorded.OwnMemory,
		Sessions: s.sessions,
		Queued:   s.Slots.Waiting,
		Waiting:  func() int { return s.decisions.Waiting() },
		Dropped:  s.log.Dropped,
		Log:      s.log.Logger,
	})
	s.Approving.Observe(func(e approvals.Event) {
		if result := resultOf(&e); result != "" {
			t.Approval(result, e.Decided.Sub(e.Created))
		}
	})
	return t
}

// resultOf returns how the wait for a decision about a call has ended; "" if it goes on, or had ended before.
func resultOf(e *approvals.Event) telemetry.ApprovalResult {
	switch {
	case e.What == approvals.Decided && e.Phase == approvals.Approved:
		return telemetry.Approved
	case e.What == approvals.Decided:
		return telemetry.Denied
	case e.Was != approvals.Pending:
		return "" // it was approved, or waits on
	case e.What == approvals.TimedOut:
		return telemetry.Expired
	}
	return telemetry.Withdrawn
}

// tracing is where spans are to go.
func (s *server) tracing(cfg *config.Loaded) (telemetry.Tracing, error) {
	to, warning, err := tracing.Settings(cfg, s.from.Environ)
	if warning != nil {
		s.log.Warn("no traces are sent", "err", warning)
	}
	return to, err
}

// trace sets where spans go. It is called for each reload, since a file of headers may have changed
// without the configuration.
func (s *server) trace(ctx context.Context, to telemetry.Tracing) {
	if reflect.DeepEqual(to, s.traced) {
		return
	}
	if err := s.telemetry.Trace(ctx, to); err != nil {
		s.log.Error("no traces are sent", "err", err)
		return
	}
	s.traced = to
}

// usage returns the resources that the processes of each capsule use.
func (s *server) usage() map[string]telemetry.Usage { return s.usageOf(s.Supervisor.Lives()) }

// usageOf returns the same for some capsules.
func (s *server) usageOf(lives map[string]peer.Life) map[string]telemetry.Usage {
	pids := map[string]int{}
	for name, life := range lives {
		if life.Pid != 0 {
			pids[name] = life.Pid
		}
	}
	trees := s.Launcher.Usage(slices.Collect(maps.Values(pids)))
	used := make(map[string]telemetry.Usage, len(pids))
	for name, pid := range pids {
		if tree, ok := trees[pid]; ok {
			used[name] = telemetry.Usage{Memory: tree.RSS, CPU: tree.CPU, Processes: tree.Processes}
		}
	}
	return used
}

// sessions returns the number of open sessions, which is 1 on stdio.
func (s *server) sessions() int {
	if s.http == nil {
		return 1
	}
	return s.http.Sessions()
}
