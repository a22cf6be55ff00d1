package announce

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
)

// SPEC S2: nothing is kept of records that are gone, nor of their callers.
func TestS2EventsOfRecordsThatAreGoneAreForgotten(t *testing.T) {
	opened := func() *approvals.Store {
		s, err := approvals.Open(approvals.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	store, q, now := opened(), newQueue(), time.Now()
	for n := range 20 {
		if _, _, err := store.Ask(approvals.Question{Caller: fmt.Sprint("caller", n%3), Tool: "wipe", Args: json.RawMessage(fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
	}
	q.note(store, now)
	first, second := q.next(now), q.next(now)
	q.refused(first, first.news, nil, time.Minute, now)
	if q.forget(opened()); len(q.events) != 1 || len(q.callers) != 1 {
		t.Errorf("%d events and %d callers are kept of one that is being sent", len(q.events), len(q.callers))
	}
	q.drop(second)
	if q.forget(opened()); len(q.events)+len(q.callers)+q.later.Len()+q.due.Len()+q.sending+q.failing != 0 {
		t.Errorf("what is kept of nothing: %+v", q)
	}
	if e := q.next(now.Add(time.Hour)); e != nil {
		t.Errorf("an event of %s is sent", e.id)
	}
}
