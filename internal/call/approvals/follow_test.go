package approvals_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
)

// SPEC-TOOLS 8.7: whoever follows the records sees those that are there and wanted, and every change.
func TestT87Follow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		first := ask(t, s, question(`{"a":1}`))
		decide(t, s, ask(t, s, question(`{"a":0}`)).ID, deny)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var seen []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for r := range s.Follow(ctx, func(r *approvals.Record) bool { return r.Phase == approvals.Pending }) {
				seen = append(seen, fmt.Sprint(string(r.Args), r.Phase, r.Used.IsZero()))
			}
		}()
		synctest.Wait()
		decide(t, s, first.ID, approve)
		synctest.Wait()
		if err := s.Use(first.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ask(t, s, question(`{"a":2}`))
		time.Sleep(approvals.DefaultTTL)
		synctest.Wait()
		cancel()
		<-over
		want := []string{`{"a":1}Pendingtrue`, `{"a":1}Approvedtrue`, `{"a":1}Approvedfalse`, `{"a":2}Pendingtrue`, `{"a":2}Expiredtrue`}
		if !slices.Equal(seen, want) {
			t.Errorf("seen:\n%q\nwant\n%q", seen, want)
		}
	})
}
