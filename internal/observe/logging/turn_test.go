package logging_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
)

// SPEC N2: older lines are read in the turn of whoever asks for them: the file may be large.
func TestN2OlderLinesAreReadInTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.log")
	if err := os.WriteFile(path, []byte(`{"time":"2026-01-02T15:04:05Z","level":"info","msg":"call","tool":"mail"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := turns.NewAging(turns.NoLimit, 1, time.Hour)
	eve := turns.Owner{Caller: "eve", Session: "1"}
	lines := func(ctx context.Context, last int) (n int) {
		for range logging.ReadBack(ctx, path, history.Query{Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, last, nil) {
			n++
		}
		return n
	}
	for _, last := range []int{0, 10} {
		if n := lines(q.In(t.Context(), eve), last); n != 1 {
			t.Errorf("%d lines of the last %d", n, last)
		}
	}
	for _, owner := range []turns.Owner{eve, {Caller: "bob"}} { // from now on she has her part
		place, err := q.TakeBriefly(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		defer place.Give()
	}
	for _, last := range []int{0, 10} {
		ctx, leave := context.WithCancelCause(q.In(t.Context(), eve))
		read := make(chan int)
		go func() { read <- lines(ctx, last) }()
		for q.Waiting() == 0 {
			select {
			case n := <-read:
				t.Fatalf("%d of the last %d lines are read beside other work of the caller", n, last)
			default:
			}
		}
		leave(io.ErrClosedPipe)
		if n := <-read; n != 0 || !errors.Is(context.Cause(ctx), io.ErrClosedPipe) {
			t.Errorf("who has left gets %d lines", n)
		}
	}
}

// SPEC N2: who reads the log at the control socket does not wait for callers who have much else to do, and a caller has one place.
func TestN2TheSocketDoesNotWaitForCallersOfTheConsole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.log")
	if err := os.WriteFile(path, []byte(`{"time":"2026-01-02T15:04:05Z","level":"info","msg":"call","tool":"mail"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		q := turns.NewAging(turns.NoLimit, 1, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lines := func(ctx context.Context) (n int) {
			for range logging.ReadBack(ctx, path, history.Query{Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, 10, nil) {
				n++
			}
			return n
		}
		for _, owner := range []turns.Owner{{Caller: "eve", Session: "1"}, {Caller: "bob", Session: "1"}} {
			place, err := q.TakeBriefly(ctx, owner)
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
		}
		for range 2 {
			go lines(q.In(ctx, turns.Owner{Caller: "eve", Session: "1"}))
		}
		synctest.Wait()
		for _, of := range []context.Context{ctx, q.In(ctx, turns.Owner{Caller: "cy", Session: "1"})} {
			in, leave := context.WithTimeout(of, time.Minute)
			if n := lines(in); n != 1 {
				t.Errorf("%v reads %d lines", turns.OwnerIn(of), n)
			}
			leave()
		}
	})
}
