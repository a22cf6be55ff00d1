package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is a server that uses as much of a processor as a test says.
type fake struct {
	each, used time.Duration
}

func (f *fake) subject() subject {
	return subject{
		load: func(n, _ int) ([]time.Duration, error) {
			f.used += time.Duration(n) * f.each
			return slices.Repeat([]time.Duration{f.each}, n), nil
		},
		cpu: func() (cpu, error) { return cpu{own: f.used}, nil },
	}
}

var fakeJobs = []job[*fake]{{"a call", 3 * time.Nanosecond, 1, (*fake).subject}, {"another", 3 * time.Nanosecond, 2, (*fake).subject}}

// SPEC-TOOLS 8.8, 8.3: two servers may differ by more than what is looked for, and the median over pairs counts.
func TestT88TheMedianOverPairsCounts(t *testing.T) {
	seconds := []time.Duration{990, 1900, 1030, 1020, 1010} // what a piece of work takes the second server of each pair
	var events []string
	opened := [2]int{}
	p := pairs[*fake]{len(seconds), func(_ context.Context, which int) (*fake, func(), error) {
		name := string("AB"[which])
		events = append(events, name)
		each := time.Duration(1000)
		if which == 1 {
			each = seconds[opened[1]]
		}
		opened[which]++
		return &fake{each: each}, func() { events = append(events, "-"+name) }, nil
	}}
	sums, err := p.compare(t.Context(), fakeJobs)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(events, " "), "A B -B -A B A -A -B A B -B -A B A -A -B A B -B -A"; got != want {
		t.Errorf("servers are started and ended in the order %s, want %s", got, want)
	}
	for i, sum := range sums {
		if want := (spread{1.02, 0.99, 1.9}); sum.byCPU != want || sum.own != want || sum.ratio != want {
			t.Errorf("%s: CPU %v, own %v, p50 %v; want %v", fakeJobs[i].what, sum.byCPU, sum.own, sum.ratio, want)
		}
		if want := (spread{20, -10, 900}); sum.more != want || sum.cpu != [2]time.Duration{1000, 1020} || sum.p50 != sum.cpu {
			t.Errorf("%s: %v more, %v, %v; want %v", fakeJobs[i].what, sum.more, sum.cpu, sum.p50, want)
		}
		if got := sum.byCPU.ofRatio() + ", " + sum.more.ofMicros(); got != "0.990 to 1.900, -0.0 to +0.9" {
			t.Errorf("the pairs are written as %s", got)
		}
	}
}

// A pair of which one server does not start, or fails, is ended.
func TestAPairThatFailsIsEnded(t *testing.T) {
	odd := errors.New("odd")
	for failing := range 2 {
		open := 0
		p := pairs[*fake]{2, func(_ context.Context, which int) (*fake, func(), error) {
			if which == failing {
				return nil, nil, odd
			}
			open++
			return &fake{}, func() { open-- }, nil
		}}
		if _, err := p.compare(t.Context(), fakeJobs); !errors.Is(err, odd) || open != 0 {
			t.Errorf("got %v, and %d servers run", err, open)
		}
	}
	open := 0
	p := pairs[*fake]{2, func(context.Context, int) (*fake, func(), error) {
		open++
		return &fake{}, func() { open-- }, nil
	}}
	fails := job[*fake]{"a call", 1, 1, func(*fake) subject {
		return subject{load: func(int, int) ([]time.Duration, error) { return nil, odd }}
	}}
	if _, err := p.compare(t.Context(), []job[*fake]{fails}); !errors.Is(err, odd) || open != 0 || !strings.HasPrefix(fmt.Sprint(err), "a call: ") {
		t.Errorf("got %v, and %d servers run", err, open)
	}
}

// SPEC-TOOLS 8.8: with -same, both servers of a pair are the same one.
func TestT88BothOfAPairMayBeTheSame(t *testing.T) {
	for _, same := range []bool{false, true} {
		var asked []int
		odd := errors.New("odd")
		b := &bench{scale: smoke, compared: compared{same: same}}
		p := b.contenders(stateless, func(which int) ([]string, error) {
			asked = append(asked, which)
			return nil, odd
		})
		_, _, _ = p.open(t.Context(), 0)
		if _, _, err := p.open(t.Context(), 1); !errors.Is(err, odd) {
			t.Error(err)
		}
		want := []int{0, 1}
		if same {
			want = []int{0, 0}
		}
		if !slices.Equal(asked, want) {
			t.Errorf("same %t: servers %v are started, want %v", same, asked, want)
		}
		if strings.Contains(b.ofPairs(), "-same") != same {
			t.Errorf("same %t: the note is %q", same, b.ofPairs())
		}
	}
}
