package capsule

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/orla-project/orla/capsule/protocol"
)

// State is the state of a capsule (RFC 2 §7). The table legal has all transitions.
type State int

// The states of RFC 2 §7, and Stopping: the process is being ended and is not replaced. It
// gets no more calls, and has not ended yet.
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
	Crashed:   {Starting, Stopped, Reloading},
	Stopping:  {Stopped},
	Stopped:   {Starting, Reloading},
}

// String is the state's name as RFC 2 has it.
func (s State) String() string {
	return [...]string{"CREATED", "STARTING", "READY", "RELOADING", "CRASHED", "STOPPING", "STOPPED"}[s]
}

// startedBy says what starts a capsule that has no process.
type startedBy int

const (
	byItself   startedBy = iota // Orla, at status.next, or when files change
	byCall                      // a call: it is lazy, or was idle; a remote server that failed is also tried at status.next
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
	cause  error          // why it is Crashed, or Stopped by its failures, or was so before it is Starting; else nil
	stderr string         // the last lines of a process that was never READY, for the log
	next   time.Time      // when the next start is due; zero if none is
	starts startedBy      // what starts it, if it has no process

	heard   int   // the number of the last order of an operator that was followed
	tried   int   // the number of the last order before a process that did not start in place of this one
	refused error // why that process did not start; nil if there was none

	installs bool // packages are being installed, and reason has the last line of the installer

	changed chan struct{} // closed when a newer status replaces this one
}

// run names a process; the zero value is none.
type run struct {
	pid   int
	place string // where it is; "" if that is this machine
	began time.Time
	order int // the number of the last order of an operator before its start
}

// become publishes the next status and logs it (SPEC D1, I3). Only Serve's goroutine calls
// it, and it does so before it acts: no call may reach a process that is about to end. It
// sets next.since, if that is zero.
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
		pid = old.pid // of the process that has ended
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
	close(old.changed) // wakes everyone who waits for a change of old
	if next.state == Crashed || next.state == Stopped {
		c.offers.GiveUp()
	}
}
