package approvals_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.8: every end, change and decision of a record is told, once, also over a restart.
func TestT88WhatBecomesOfARecordIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		dir := t.TempDir()
		opened := func() *approvals.Store {
			s, err := approvals.Open(approvals.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Told: func(e approvals.Event) {
				told = append(told, fmt.Sprint(string(e.Args), " ", e.What, " ", e.Phase, " was ", e.Was, " by ", e.By, e.ExtendedBy))
			}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := opened()
		decide(t, s, ask(t, s, question(`0`)).ID, deny)
		used := decide(t, s, ask(t, s, question(`1`)).ID, approve)
		if err := s.Use(used.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Extend(ask(t, s, question(`2`)).ID, approvals.Decision{TTL: time.Hour, By: "ada", How: manifest.ApproverOperator}); err != nil {
			t.Fatal(err)
		}
		decide(t, s, ask(t, s, question(`3`)).ID, approve)
		time.Sleep(30 * time.Minute) // 3 was not used
		synctest.Wait()
		other := question(`4`)
		other.Policy = "2"
		ask(t, s, other)
		s.Withdraw("2") // 2 is of other rules
		s.Close()
		time.Sleep(30 * time.Minute)
		for range 2 { // 4 has ended meanwhile
			s = opened()
			s.Close()
		}
		want := []string{
			"0 decided Denied was  by root", "1 decided Approved was  by root", "2 extended Pending was  by ada", "3 decided Approved was  by root",
			"3 timed_out Expired was Approved by root", "2 withdrawn Expired was Pending by ", "4 timed_out Expired was Pending by ",
		}
		if !slices.Equal(told, want) {
			t.Errorf("told:\n%q\nwant\n%q", told, want)
		}
	})
}

// SPEC-TOOLS 8.8: while nothing can be recorded, nobody decides and no call goes on.
func TestT88NothingCountsThatCannotBeRecorded(t *testing.T) {
	var why error
	s, err := approvals.Open(approvals.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Unrecorded: func() error { return why }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	pending, approved := ask(t, s, question(`1`)), ask(t, s, question(`2`))
	decide(t, s, approved.ID, approve)
	for _, why = range []error{errors.New("the disk is full"), nil} {
		for what, do := range map[string]func() error{
			"extend": func() error {
				_, err := s.Extend(pending.ID, approvals.Decision{TTL: time.Hour, By: "root", How: manifest.ApproverOperator})
				return err
			},
			"use":  func() error { return s.Use(approved.ID) },
			"deny": func() error { _, err := s.Decide(pending.ID, deny); return err },
		} {
			if what == "extend" && why == nil {
				continue // it may be denied by now
			}
			if err := do(); why == nil && err != nil || why != nil && (fault.From(err) == nil || fault.From(err).Code != fault.NotReady || !errors.Is(err, why)) {
				t.Errorf("%s while %v: %v", what, why, err)
			}
		}
	}
}

// SPEC-TOOLS 8.7: who decides is not who makes the call, nor the agent that it is made for.
func TestT87NobodyDecidesAboutItsOwnCall(t *testing.T) {
	s := open(t, t.TempDir())
	q := question(`1`)
	q.Agent = "bot"
	r := ask(t, s, q)
	for _, by := range []string{"ann", "bot"} {
		for _, d := range []approvals.Decision{approve, deny} {
			d.By = by
			if _, err := s.Decide(r.ID, d); !errors.Is(err, approvals.ErrOwn) {
				t.Errorf("%s decides: %v", by, err)
			}
		}
	}
	decide(t, s, r.ID, approve)
}
