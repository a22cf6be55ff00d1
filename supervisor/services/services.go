// Package services says how the suture supervisors of Orla run their services (SPEC F2).
package services

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/thejerf/suture/v4"
)

// StopBudget is how long a supervisor of the tree waits for its services. Past
// it, suture walks away from what still runs, so every stop sequence below
// must fit into it; a test holds the sum.
const StopBudget = 20 * time.Second

// Spec is how every supervisor of the tree behaves. A service that panics
// is logged with its stack and started again; the others never notice
// (SPEC F2). suture counts only such failures: restarts of processes belong to
// the capsules, since one count for all siblings would let a bad one delay the
// good ones.
func Spec(log *slog.Logger) suture.Spec {
	return suture.Spec{
		EventHook:        func(e suture.Event) { logEvent(log, e) },
		FailureThreshold: 5,
		FailureDecay:     30, // seconds, as suture counts
		FailureBackoff:   time.Second,
		Timeout:          StopBudget,
	}
}

// logEvent writes one line for an event of the tree. It runs on the
// supervisor's own goroutine, so it must not call back into it.
func logEvent(log *slog.Logger, e suture.Event) {
	switch e := e.(type) {
	case suture.EventServicePanic:
		log.Error("a service panicked", "service", e.ServiceName, "panic", e.PanicMsg, "stack", e.Stacktrace, "restarting", e.Restarting)
	case suture.EventServiceTerminate:
		log.Warn("a service ended", "service", e.ServiceName, "err", fmt.Sprint(e.Err), "restarting", e.Restarting)
	case suture.EventStopTimeout:
		log.Error("a service did not stop in time", "service", e.ServiceName, "budget_ms", StopBudget.Milliseconds())
	case suture.EventBackoff:
		log.Warn("services fail too often; restarts pause", "supervisor", e.SupervisorName)
	case suture.EventResume:
		log.Info("restarts go on", "supervisor", e.SupervisorName)
	}
}
