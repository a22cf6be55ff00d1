package audit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/observe/audit"
)

// SPEC N2: the log is checked in the turn of whoever asks for that: it may be large.
func TestN2TheLogIsCheckedInTurn(t *testing.T) {
	q := turns.NewAging(turns.NoLimit, 1, time.Hour)
	eve := turns.Owner{Caller: "eve", Session: "1"}
	for _, owner := range []turns.Owner{eve, {Caller: "bob"}} {
		place, err := q.TakeBriefly(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		defer place.Give()
	}
	ctx, leave := context.WithCancelCause(q.In(t.Context(), eve))
	checked := make(chan error)
	go func() { checked <- new(audit.Verifier).File(ctx, "x", strings.NewReader("{}\n"), false) }()
	for q.Waiting() == 0 {
		select {
		case err := <-checked:
			t.Fatalf("it is checked beside other work of the caller: %v", err)
		default:
		}
	}
	leave(io.ErrClosedPipe)
	if err := <-checked; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("who has left: %v", err)
	}
}
