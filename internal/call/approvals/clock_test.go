package approvals_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
)

// SPEC-TOOLS 8.7: a clock that jumps while Orla runs makes nothing good for longer than it was to be. What the clock says is
// over does not count either.
func TestT87TheClockJumps(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, t.TempDir())
				pending, approved, extended := ask(t, s, question(`{"a":1}`)), ask(t, s, question(`{"a":2}`)), ask(t, s, question(`{"a":3}`))
				decide(t, s, approved.ID, approve)
				decide(t, s, extended.ID, approve)
				s.Jump(by)
				if by > 0 { // it is over at once
					if _, err := s.Decide(pending.ID, approve); err == nil {
						t.Error("a decision counts, and its time is over")
					}
					if err := s.Use(approved.ID); !errors.Is(err, approvals.ErrUsed) {
						t.Errorf("an approval is used, and its time is over: %v", err)
					}
					if r := ask(t, s, question(`{"a":1}`)); r.ID == pending.ID {
						t.Error("a call is attached to a record of which the time is over")
					}
					return
				}
				if r, err := s.Extend(extended.ID, approvals.Decision{TTL: 20 * time.Minute, By: "root", How: approve.How}); err != nil || r.Phase != approvals.Approved {
					t.Errorf("it is not extended: %+v, %v", r, err)
				}
				time.Sleep(approvals.DefaultTTL - time.Second)
				for _, r := range []approvals.Record{pending, approved, extended} {
					if got, _ := s.Record(r.ID); got.Phase == approvals.Expired {
						t.Errorf("it is over too early: %+v", got)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				for _, r := range []approvals.Record{pending, approved} {
					if got, _ := s.Record(r.ID); got.Phase != approvals.Expired || !s.Over(r.ID) {
						t.Errorf("it is good for longer than its time: %+v", got)
					}
				}
				if _, err := s.Decide(pending.ID, approve); err == nil {
					t.Error("a decision counts after its time")
				}
				if err := s.Use(approved.ID); !errors.Is(err, approvals.ErrUsed) {
					t.Errorf("an approval is used after its time: %v", err)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if err := s.Use(extended.ID); !errors.Is(err, approvals.ErrUsed) {
					t.Errorf("an extended one is used after its time: %v", err)
				}
				if n := s.Open(); n != 0 {
					t.Errorf("%d records have a place", n)
				}
			})
		})
	}
}

// SPEC-TOOLS 8.7: nobody knows how long a machine was off whose clock was set back meanwhile. What waited or was good then is
// not, and says why. A clock that is set right by less than a minute changes nothing.
func TestT87TheClockIsSetBackOverARestart(t *testing.T) {
	for by, over := range map[time.Duration]bool{24 * time.Hour: true, time.Hour: true, 2 * time.Minute: true, 30 * time.Second: false, -time.Minute: false, -time.Hour: true} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				var told []approvals.Event
				options := approvals.Options{Dir: dir, Told: func(e approvals.Event) { told = append(told, e) }, Log: slog.New(slog.DiscardHandler)}
				before := open(t, dir)
				before.Jump(by)
				pending, approved, denied := ask(t, before, question(`{"a":1}`)), ask(t, before, question(`{"a":2}`)), ask(t, before, question(`{"a":3}`))
				used := ask(t, before, question(`{"a":4}`))
				decide(t, before, approved.ID, approve)
				decide(t, before, denied.ID, deny)
				decide(t, before, used.ID, approve)
				if err := before.Use(used.ID); err != nil {
					t.Fatal(err)
				}
				before.Close()
				s, err := approvals.Open(options)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				_, errDecide := s.Decide(pending.ID, approve)
				errUse := s.Use(approved.ID)
				if (errDecide != nil) != over || (errUse != nil) != over {
					t.Errorf("decide: %v, use: %v", errDecide, errUse)
				}
				if r, _ := s.Record(used.ID); r.Phase != approvals.Approved || r.Used.IsZero() {
					t.Errorf("the one that was used: %+v", r)
				}
				if r, _ := s.Record(denied.ID); r.Phase != approvals.Denied {
					t.Errorf("the one that was denied: %+v", r)
				}
				if by > time.Minute && len(told) != 2 {
					t.Errorf("%d ends were told of", len(told))
				}
				for _, e := range told {
					if by > time.Minute && (e.What != approvals.TimedOut || !strings.Contains(e.Reason, "the clock was set back")) {
						t.Errorf("it is told that %s: %s", e.What, e.Reason)
					}
				}
				s.Close()
				told = nil
				again, err := approvals.Open(options)
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				if over && len(told) > 0 {
					t.Errorf("the next start tells again: %+v", told)
				}
			})
		})
	}
}
