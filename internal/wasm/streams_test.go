package wasm

import (
	"context"
	"errors"
	"testing"
)

// SPEC-TOOLS 3.7: the timeout ends a module, also in a single call of the host that writes the
// same buffer millions of times over.
func TestT37WritingEndsWithTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stderr tail
	w := until{ctx, nil, &stderr}
	if n, err := w.Write([]byte("early")); n != 5 || err != nil {
		t.Errorf("Write: %d, %v", n, err)
	}
	cancel()
	if n, err := w.Write([]byte("late")); n != 0 || !errors.Is(err, context.Canceled) || string(stderr.bytes()) != "early" {
		t.Errorf("Write after the end: %d, %v, and %q is kept", n, err, stderr.bytes())
	}
}
