package approvals_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC N2: whoever makes many calls that need an approval, or large ones, does not have what was decided about the calls of
// others forgotten: a person compares a call with the last one of its caller.
func TestN2WhatWasDecidedForOthersStays(t *testing.T) {
	needs.Time(t, "keeps many records")
	for name, c := range map[string]struct{ calls, bytes int }{"many": {approvals.MaxEnded + 50, 0}, "large": {80, 250 << 10}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			use := func(caller, args string) approvals.Record {
				q := question(args)
				q.Caller = caller
				r := ask(t, s, q)
				decide(t, s, r.ID, approve)
				if err := s.Use(r.ID); err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := use("bob", `{"path":"/srv"}`)
			oldest := use("ann", `{}`)
			for n := range c.calls {
				args, err := json.Marshal(map[string]string{"text": strings.Repeat("x", c.bytes) + fmt.Sprint(n)})
				if err != nil {
					t.Fatal(err)
				}
				use("ann", string(args))
			}
			if s.Has(oldest.ID) || len(s.List()) > approvals.MaxEnded {
				t.Errorf("the oldest of who has the most is kept, of %d", len(s.List()))
			}
			q := question(`{"path":"/"}`)
			q.Caller = "bob"
			_, last, err := s.Get(ask(t, s, q).ID)
			if err != nil || last == nil || last.ID != first.ID {
				t.Errorf("the last approved call of another caller is %v, %v", last, err)
			}
		})
	}
}

// SPEC N2: what has just ended is kept, whoever has the most: it may be an approval that a call gives back.
func TestN2WhatHasJustEndedStays(t *testing.T) {
	needs.Time(t, "keeps many records")
	s := open(t, t.TempDir())
	use := func(caller string, bytes int) string {
		q := question(`{"text":"` + strings.Repeat("x", bytes) + `"}`)
		q.Caller = caller
		r := ask(t, s, q)
		decide(t, s, r.ID, approve)
		if err := s.Use(r.ID); err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	for n := range 90 { // as much as is kept
		use(fmt.Sprint("caller ", n), 200<<10)
	}
	id := use("bob", 250<<10)
	if !s.Has(id) {
		t.Error("it is forgotten")
	}
	if s.GiveBack(id); !s.Has(id) {
		t.Error("it cannot be given back")
	}
	r, _, err := s.Get(id)
	if err != nil || !r.Used.IsZero() {
		t.Errorf("it is not good again: %v, %v", r.Used, err)
	}
}
