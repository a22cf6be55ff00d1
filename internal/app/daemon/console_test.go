package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC N2: what a browser of the console asks for waits in turn with the messages of its caller, and each browser is a client of its own.
func TestN2TheConsoleTakesTurnsWithMCP(t *testing.T) {
	s := &server{httpFront: httpFront{http: &httpfront.Front{Working: turns.NewAging(turns.NoLimit, 1, time.Hour)}}}
	ctx := s.asVisitor(t.Context(), console.Visit{Session: "one"})
	if got, want := turns.OwnerIn(ctx), (turns.Owner{Caller: "console", Session: "one"}); got != want {
		t.Errorf("the work is that of %v; want %v", got, want)
	}
	for _, caller := range []string{"console", "bob"} {
		place, err := s.http.Working.TakeBriefly(t.Context(), turns.Owner{Caller: caller})
		if err != nil {
			t.Fatal(err)
		}
		defer place.Give()
	}
	ctx, leave := context.WithCancel(ctx)
	leave()
	if _, err := turns.Begin(ctx, 1); err == nil {
		t.Error("it does not wait for a message of the same caller")
	}
}
