package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// fixedContender answers after a fixed time, and fails where fail says so.
func fixedContender(name string, took time.Duration, fail func(payload) error, closed *int) *contender {
	var used time.Duration
	return &contender{
		name: name, over: withSession.name,
		work: func(p payload) load {
			return func(n, _ int) ([]time.Duration, error) {
				if err := fail(p); err != nil {
					return nil, err
				}
				used += time.Duration(n) * took
				return slices.Repeat([]time.Duration{took}, n), nil
			}
		},
		cpu:   func() (cpu, error) { return cpu{own: used}, nil },
		close: func() { *closed++ },
	}
}

func fine(payload) error { return nil }

func TestARivalThatFailsACellIsStartedAgain(t *testing.T) {
	var ended, opened int
	big := func(p payload) error {
		if p.size > 100 {
			return errors.New("too large")
		}
		return nil
	}
	slow := &rival{name: "slow", over: withSession.name, open: func(context.Context) (*contender, error) {
		opened++
		return fixedContender("slow", 40, big, &ended), nil
	}}
	quick := &rival{name: "quick", over: overREST, open: func(context.Context) (*contender, error) {
		return fixedContender("quick", 5, fine, new(int)), nil
	}}
	gone := &rival{name: "gone", over: withSession.name, open: func(context.Context) (*contender, error) {
		return nil, errors.New("not there")
	}}
	r := race{plots: newPlots(), smallest: 64}
	relay, orla := fixedContender("relay", 10, fine, new(int)), fixedContender("Orla", 20, fine, new(int))
	for _, size := range []int{64, 1000, 64} {
		if err := r.cell(t.Context(), payload{size: size}, 1, relay, orla, []*rival{slow, quick, gone}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, row := range r.table.rows {
		got = append(got, row[0]+" "+row[2]+" "+row[5]+" "+row[len(row)-1])
	}
	want := []string{
		"64 B, 1 relay 2.00× ", "64 B, 1 slow 0.50× ahead", "64 B, 1 quick 4.00× BEHIND p50, CPU", "64 B, 1 gone - failed (1)",
		"1000 B, 1 relay 2.00× ", "1000 B, 1 slow - failed (2)", "1000 B, 1 quick 4.00× BEHIND p50, CPU", "1000 B, 1 gone - failed (1)",
		"64 B, 1 relay 2.00× ", "64 B, 1 slow 0.50× ahead", "64 B, 1 quick 4.00× BEHIND p50, CPU", "64 B, 1 gone - failed (1)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if opened != 2 || ended != 1 {
		t.Errorf("the one that failed was started %d times and ended %d times, want 2 and 1", opened, ended)
	}
	if notes := r.footnotes(); !strings.Contains(notes, "(1) gone: not there") || !strings.Contains(notes, "(2) slow: too large") {
		t.Errorf("the footnotes are %q", notes)
	}
}

func TestAnErrorThatIsNoRivalsEndsTheRace(t *testing.T) {
	broken := errors.New("broken")
	r := race{plots: newPlots()}
	orla := fixedContender("Orla", 1, func(payload) error { return broken }, new(int))
	err := r.cell(t.Context(), payload{size: 64}, 1, fixedContender("relay", 1, fine, new(int)), orla, nil)
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
