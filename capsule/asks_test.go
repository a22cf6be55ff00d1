package capsule

import (
	"context"
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/turns"
)

// The questions that a capsule has open to one client leave room for those to
// another, and the error says which bound it is.
func TestN2QuestionsAreSharedByCaller(t *testing.T) {
	var a asks
	cancel := context.CancelFunc(func() {})
	open := func(line turns.Line) (n int, why string) {
		for ; n < 10*maxAsks; n++ {
			if why = a.enter(fmt.Sprint(line, n), line, &cancel); why != "" {
				return n, why
			}
		}
		return n, ""
	}
	greedy, why := open(turns.Line{Session: "greedy"})
	if greedy != maxAsks || why == "" {
		t.Errorf("one client has %d open, then %q; want %d", greedy, why, maxAsks)
	}
	if n, _ := open(turns.Line{Caller: "other", Session: "1"}); n < maxAsks/8 {
		t.Errorf("another has %d beside it", n)
	}
}
