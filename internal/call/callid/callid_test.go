package callid_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/callid"
)

func TestAnIDTravelsWithItsContext(t *testing.T) {
	ctx := callid.With(t.Context(), "x")
	if got := callid.From(ctx); got != "x" {
		t.Errorf("got %q", got)
	}
	if a, b := callid.From(t.Context()), callid.From(t.Context()); a == "" || a == b {
		t.Errorf("ids %q and %q; want two that differ", a, b)
	}
}
