package daemon

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// signals are the signals that Orla handles. Each kind has its own channel: a signal is lost if its
// channel is full, and many of one kind must not displace another.
type signals struct {
	end    chan os.Signal // SIGTERM, SIGINT, a SIGHUP of a terminal that is gone; holds the second as well
	reload chan os.Signal // SIGHUP
	state  chan os.Signal // SIGUSR1

	hangup  chan os.Signal // SIGHUP, if Orla has a terminal
	stopped chan struct{}  // closed by stop
	left    sync.WaitGroup // holds followTerminal
}

// newSignals begins to handle signals. gone reports whether Orla's terminal is gone; it is nil if Orla has none.
func newSignals(gone func() bool) *signals {
	s := &signals{
		end: make(chan os.Signal, 2), reload: make(chan os.Signal, 1), state: make(chan os.Signal, 1),
		hangup: make(chan os.Signal, 1), stopped: make(chan struct{}),
	}
	signal.Notify(s.end, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(s.state, syscall.SIGUSR1)
	if gone == nil {
		signal.Notify(s.reload, syscall.SIGHUP)
		return s
	}
	signal.Notify(s.hangup, syscall.SIGHUP)
	s.left.Go(func() { s.followTerminal(gone) })
	return s
}

// hangupLooks is how often, and hangupEvery how long after one another, Orla looks after a SIGHUP whether its terminal
// is gone: a shell that ends passes SIGHUP on before the window of its terminal is closed.
const hangupLooks, hangupEvery = 100, 50 * time.Millisecond

// followTerminal passes on SIGHUP: as a request to reload, or to end once the terminal is gone. Then it returns, since
// a terminal that is closed may cause several, and a second signal to end ends Orla at once.
func (s *signals) followTerminal(gone func() bool) {
	var again <-chan time.Time // when to look again; nil for not at all
	for looks := 0; ; looks-- {
		select {
		case sig := <-s.hangup:
			looks = hangupLooks
			if !gone() {
				forward(s.reload, sig)
			}
		case <-again:
		case <-s.stopped:
			return
		}
		if gone() {
			forward(s.end, syscall.SIGHUP)
			return
		}
		again = nil
		if looks > 0 {
			again = time.After(hangupEvery)
		}
	}
}

// forward puts a signal into a channel, unless that is full.
func forward(to chan<- os.Signal, sig os.Signal) {
	select {
	case to <- sig:
	default: // there are enough of them
	}
}

// errSearched is the cause of the context of untilEnd if it ends without a signal.
var errSearched = errors.New("the search has ended")

// untilEnd returns a context that ends with the first signal that ends Orla, or when done is called.
// The signal is its cause, and can still be read from end.
func (s *signals) untilEnd(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		select {
		case sig := <-s.end:
			cancel(signalled{sig})
			forward(s.end, sig)
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		<-left
		cancel(errSearched)
	}
}

// repeats is for how long a signal after the first one counts as the same: timeout, and what runs programs for others, such as npm and
// make, pass on to Orla what its terminal or their group has sent it already.
const repeats = 250 * time.Millisecond

// second waits for a signal that asks Orla to end at once, or for stopped. Then it returns nil. The first signal came just before.
func (s *signals) second(stopped <-chan struct{}) os.Signal {
	for begun := time.Now(); ; {
		select {
		case sig := <-s.end:
			if time.Since(begun) > repeats {
				return sig
			}
		case <-stopped:
			return nil
		}
	}
}

func (s *signals) stop() {
	for _, c := range []chan os.Signal{s.end, s.reload, s.state, s.hangup} {
		signal.Stop(c)
	}
	close(s.stopped)
	s.left.Wait()
}

// signalled is a signal as the reason of an end.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "signal: " + s.String() }

// logState logs the state of Orla, for SIGUSR1.
func (s *server) logState() {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.log.Info("summary",
		"tools", len(s.Supervisor.Catalog().Tools),
		"in_flight", s.Supervisor.InFlight(),
		"goroutines", runtime.NumGoroutine(),
		"heap_bytes", mem.HeapAlloc)
	lives := s.Supervisor.Lives()
	for _, name := range slices.Sorted(maps.Keys(lives)) {
		life := lives[name]
		s.log.Info("capsule", "tool", name, "state", life.State, "reason", life.Reason, "pid", life.Pid,
			"for_ms", time.Since(life.Since).Milliseconds(), "failures", life.Failures, "restarts", life.Restarts,
			"last_exit", life.LastExit, "in_flight", life.InFlight, "waiting", life.Waiting, "calls", life.Calls)
	}
}
