package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

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
