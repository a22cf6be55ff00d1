package rejudge_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
)

// judge is a Judge whose answer a test changes.
type judge struct {
	mu    sync.Mutex
	why   error
	noted int           // owned by the test's goroutine
	only  *rules.Target // whom why is for; nil for all
	until context.Context
	end   context.CancelFunc
}

func newJudge() *judge {
	j := &judge{}
	j.until, j.end = context.WithCancel(context.Background())
	return j
}

func (j *judge) Until() context.Context {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.until
}

func (j *judge) May(target *rules.Target) *rejudge.Refusal {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.why == nil || j.only != nil && j.only != target {
		return nil
	}
	return &rejudge.Refusal{Err: j.why, Note: func() { j.noted++ }}
}

func (j *judge) change(why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	end := j.end
	j.why = why
	j.until, j.end = context.WithCancel(context.Background())
	end()
}

var errDenied = errors.New("denied")

// SPEC-TOOLS 8.6: a call that waits ends when rules deny it, at whatever change, and a call that was sent does not.
func TestT86AWaitEndsWhenRulesDenyIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudge()
		ctx := rejudge.With(t.Context(), j, nil)
		waits, end := rejudge.While(ctx)
		for range 3 {
			j.change(nil)
			synctest.Wait()
			if waits.Err() != nil {
				t.Fatal("it ends though the rules allow it")
			}
		}
		sent, endSent := rejudge.While(rejudge.Sent(ctx))
		over, endOver := rejudge.While(ctx)
		endOver()
		j.change(errDenied)
		synctest.Wait()
		if !errors.Is(context.Cause(waits), errDenied) {
			t.Errorf("the wait has ended by %v", context.Cause(waits))
		}
		if sent.Err() != nil || ctx.Err() != nil {
			t.Error("a call that was sent has ended")
		}
		if cause := context.Cause(over); !errors.Is(cause, context.Canceled) || errors.Is(cause, errDenied) {
			t.Errorf("a wait that was over has ended by %v", cause)
		}
		again, endAgain := rejudge.While(ctx)
		if !errors.Is(context.Cause(again), errDenied) {
			t.Error("a wait that begins after the change goes on")
		}
		if j.noted != 0 {
			t.Error("it was noted by another goroutine than that of the call")
		}
		end()
		endSent()
		endAgain()
		if j.noted != 2 {
			t.Errorf("it was noted %d times", j.noted)
		}
	})
}

// SPEC-TOOLS 8.6: a call that goes to another provider is judged by the names that it has there. Without a Judge
// nothing is.
func TestT86AnotherTargetIsJudged(t *testing.T) {
	other := rules.NewTarget([]string{"b"}, nil, nil, nil)
	j := newJudge()
	j.why, j.only = errDenied, other
	ctx := rejudge.With(t.Context(), j, rules.NewTarget([]string{"a"}, nil, nil, nil))
	if waits, end := rejudge.While(ctx); waits.Err() != nil {
		t.Error(context.Cause(waits))
	} else {
		end()
	}
	next, err := rejudge.Of(ctx, other)
	if !errors.Is(err, errDenied) {
		t.Errorf("%v", err)
	}
	if waits, end := rejudge.While(next); !errors.Is(context.Cause(waits), errDenied) {
		t.Error("it waits as what it was before")
	} else {
		end()
	}
	plain := t.Context()
	if next, err := rejudge.Of(plain, other); next != plain || err != nil || rejudge.With(plain, nil, other) != plain || rejudge.Sent(plain) != plain {
		t.Error("a call without a Judge is judged")
	}
}
