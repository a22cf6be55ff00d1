package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC H4: what passes on a signal that Orla has got already, as timeout does, does not end it at once; a signal that
// comes later does.
func TestH4ARepeatedSignalIsNotASecondOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stopped := &signals{end: make(chan os.Signal, 2)}, make(chan struct{})
		got := make(chan os.Signal)
		wait := func() { got <- s.second(stopped) }
		s.end <- syscall.SIGTERM
		go wait()
		time.Sleep(repeats)
		s.end <- syscall.SIGINT
		synctest.Wait()
		select {
		case sig := <-got:
			t.Fatalf("a repeated %v counts as a second signal", sig)
		default:
		}
		time.Sleep(time.Millisecond)
		s.end <- syscall.SIGINT
		if sig := <-got; sig != syscall.SIGINT {
			t.Errorf("got %v", sig)
		}
		go wait()
		close(stopped)
		if sig := <-got; sig != nil {
			t.Errorf("got %v after the end", sig)
		}
	})
}

// SPEC F1, S2: a signal to end Orla ends the search of a start, and is not lost.
func TestS2ASignalEndsTheSearch(t *testing.T) {
	s := &signals{end: make(chan os.Signal, 2)}
	ctx, done := s.untilEnd(t.Context())
	s.end <- syscall.SIGTERM
	<-ctx.Done()
	done()
	if err := context.Cause(ctx); err.Error() != "signal: terminated" {
		t.Errorf("got %v", err)
	}
	if sig := <-s.end; sig != syscall.SIGTERM {
		t.Errorf("got %v", sig)
	}

	ctx, done = s.untilEnd(t.Context())
	if err := ctx.Err(); err != nil {
		t.Errorf("without a signal: %v", err)
	}
	done()
	if err := context.Cause(ctx); !errors.Is(err, errSearched) {
		t.Errorf("without a signal: %v", err)
	}
}
