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
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
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

// SPEC S2: who follows the records looks at those that have changed, and at no others.
func TestS2OnlyWhatHasChanged(t *testing.T) {
	s := open(t, t.TempDir())
	for n := range 20 {
		ask(t, s, question(fmt.Sprint(n)))
	}
	all, n, later := s.Since(0)
	if len(all) != 20 {
		t.Fatalf("%d records", len(all))
	}
	decide(t, s, all[3].ID, approve)
	<-later
	if changed, _, _ := s.Since(n); len(changed) != 1 || changed[0].ID != all[3].ID || changed[0].Phase != approvals.Approved {
		t.Errorf("changed: %+v", changed)
	}
}
