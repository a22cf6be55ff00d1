//go:build !race

package callid_test

import (
	"context"
	"testing"

	"github.com/orla-project/orla/internal/call/callid"
)

var kept context.Context //nolint:containedctx // so that it is on the heap

// SPEC L1: a context with an id is one value on the heap.
func TestL1AnIDIsOneValue(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { kept = callid.With(ctx, "x") }); n > 1 { //nolint:fatcontext // each time from the same one
		t.Errorf("it makes %.0f, want 1", n)
	}
}
