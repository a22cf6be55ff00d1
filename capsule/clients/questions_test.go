package clients

import (
	"context"
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// The questions that a capsule has open to one client leave room for those to
// another, and the error says which bound it is.
func TestN2QuestionsAreSharedByCaller(t *testing.T) {
	q := newQuestions(1 << 10)
	cancel := context.CancelFunc(func() {})
	open := func(owner turns.Owner) (n int, why string) {
		for ; n < 10*maxQuestions; n++ {
			if why = q.enter(fmt.Sprint(owner, n), owner, 10, &cancel); why != "" {
				return n, why
			}
		}
		return n, ""
	}
	greedy, why := open(turns.Owner{Session: "greedy"})
	if greedy != maxQuestions || why == "" {
		t.Errorf("one client has %d open, then %q; want %d", greedy, why, maxQuestions)
	}
	if n, _ := open(turns.Owner{Caller: "other", Session: "1"}); n < maxQuestions/8 {
		t.Errorf("another has %d beside it", n)
	}
}

// SPEC N2, S2: what is asked and not answered takes no memory without a bound, and leaves room
// for what others are asked.
func TestN2QuestionsAreSharedByBytes(t *testing.T) {
	const largest = 16 << 20
	q := newQuestions(largest)
	cancel := context.CancelFunc(func() {})
	total := 0
	for caller := range 10 {
		for n := range maxQuestions {
			owner := turns.Owner{Caller: fmt.Sprint(caller), Session: "1"}
			switch why := q.enter(fmt.Sprint(owner, n), owner, largest/4, &cancel); {
			case why == "":
				total += largest / 4
			case caller == 0 && n < 4, caller == 1 && n == 0:
				t.Errorf("caller %d, question %d: %s", caller, n, why)
			}
		}
	}
	if total > 4*largest {
		t.Errorf("%d bytes are open", total)
	}
	if why := q.enter("small", turns.Owner{Caller: "11", Session: "1"}, 1<<10, &cancel); why != "" {
		t.Errorf("a small one beside them: %s", why)
	}
}
