package capsule

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/orla-project/orla/capsule/protocol"
)

// State is where a capsule is in its life (RFC 2 §7). The table legal is the
// whole machine.
type State int

// The states of RFC 2 §7, and Stopping, in which a process is being ended for
// good: calls must not go to it any more, and it is not gone yet.
const (
	Created State = iota
	Starting
	Ready
	Reloading
	Crashed
	Stopping
	Stopped
)

// legal lists, for each state, the states that may follow it (SPEC D1).
var legal = [...][]State{
	Created:   {Starting, Stopped},
	Starting:  {Ready, Crashed, Stopping},
	Ready:     {Reloading, Crashed, Stopping},
	Reloading: {Starting, Stopping},
	Crashed:   {Starting, Stopped},
	Stopping:  {Stopped},
	Stopped:   {Starting},
}

// String is the state's name as RFC 2 has it.
func (s State) String() string {
	return [...]string{"CREATED", "STARTING", "READY", "RELOADING", "CRASHED", "STOPPING", "STOPPED"}[s]
}

// startedBy is what starts a capsule that does not run.
type startedBy int

const (
	byItself   startedBy = iota // Orla does, at next; nothing does if there is no next
	byCall                      // a call: it is lazy, or was idle; a remote server that failed is tried at next as well
	byOperator                  // an operator, who has stopped it
	byNobody                    // nothing: it is not served any more
)

// status is an immutable picture of a capsule at one moment.
type status struct {
	state  State
	since  time.Time
	reason string
	run                   // its process
	conn   *protocol.Peer // set exactly while state is Ready
	cause  error          // why it is Crashed, or Stopped by its failures; else nil
	stderr string         // the last lines of a process that was never READY, for the log
	next   time.Time      // when the next start is due; zero if none is
	starts startedBy      // what starts it where it does not run

	heard   int   // the number of the last order of an operator that was followed
	tried   int   // that of the last order before a process was to replace this one, and could not
	refused error // why it could not; nil if none was tried

	changed chan struct{} // closed when a newer status replaces this one
}

// run names a process; the zero value is none.
type run struct {
	pid   int
	began time.Time
	order int // the number of the last order of an operator before its start
}

// become publishes the next status and writes its line in the log (SPEC D1,
// I3). Only Serve's goroutine calls it, and it does so before it acts: no call
// may reach a process that is about to end. It dates next, if that has no date.
func (c *Capsule) become(next status) {
	old := c.status.Load()
	if !slices.Contains(legal[old.state], next.state) {
		panic(fmt.Sprintf("capsule %s: illegal transition from %v to %v", c.tool.Name, old.state, next.state))
	}
	if next.since.IsZero() {
		next.since = time.Now()
	}
	next.changed, next.heard = make(chan struct{}), c.seen.n
	if next.state == Ready || next.state == Crashed || next.state == Stopped {
		c.settled.Store(true)
		c.wasReady.Store(c.wasReady.Load() || next.state == Ready)
	}
	c.status.Store(&next)
	log := c.log.Info
	if next.state == Crashed || next.state == Stopped && next.cause != nil {
		log = c.log.Warn
	}
	pid := next.pid
	if pid == 0 && next.state != Starting {
		pid = old.pid // of the process that this is about
	}
	attrs := []any{
		slog.String("tool", c.tool.Name),
		slog.String("from", old.state.String()),
		slog.String("to", next.state.String()),
		slog.String("reason", next.reason),
		slog.Int("pid", pid),
		slog.Int64("lasted_ms", next.since.Sub(old.since).Milliseconds()),
	}
	if !next.next.IsZero() {
		attrs = append(attrs, slog.Int64("next_start_ms", next.next.Sub(next.since).Milliseconds()))
	}
	if next.stderr != "" {
		attrs = append(attrs, slog.String("stderr", next.stderr))
	}
	log("state", attrs...)
	close(old.changed) // wakes everyone who was looking at old
	if next.state == Crashed || next.state == Stopped {
		c.offers.GiveUp()
	}
}
