package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

// signals are those that Orla answers. Each kind has a channel of its own, since
// a signal that finds no place is lost: many of one kind must not keep out another.
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

func (s *signals) stop() {
	for _, c := range []chan os.Signal{s.end, s.reload, s.state} {
		signal.Stop(c)
	}
}

// signalled is a signal as the reason of an end.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "signal: " + s.String() }
