package daemon

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// signals are the signals that Orla handles. Each kind has its own channel: a signal is lost if its
// channel is full, and many of one kind must not displace another.
type signals struct {
	end    chan os.Signal // SIGTERM, SIGINT; holds the second as well
	reload chan os.Signal // SIGHUP
	state  chan os.Signal // SIGUSR1
}

func newSignals() *signals {
	s := &signals{end: make(chan os.Signal, 2), reload: make(chan os.Signal, 1), state: make(chan os.Signal, 1)}
	signal.Notify(s.end, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(s.reload, syscall.SIGHUP)
	signal.Notify(s.state, syscall.SIGUSR1)
	return s
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
			select {
			case s.end <- sig:
			default: // there are enough of them
			}
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		<-left
		cancel(errSearched)
	}
}

func (s *signals) stop() {
	for _, c := range []chan os.Signal{s.end, s.reload, s.state} {
		signal.Stop(c)
	}
}

// signalled is a signal as the reason of an end.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "signal: " + s.String() }
