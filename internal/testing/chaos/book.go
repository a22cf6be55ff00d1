package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// book is what a run has seen: events, counts and violations.
type book struct {
	out    io.Writer // where news go
	events io.Writer // where all events go
	seed   uint64
	began  time.Time

	mu         sync.Mutex // guards what follows
	round      int
	recent     []string
	windows    []window
	harms      map[string]int
	outcomes   map[string]int
	moves      map[string]int
	checks     map[string]int
	violations map[string]int // by their subject
}

func newBook(out, events io.Writer, seed uint64) *book {
	return &book{
		out: out, events: events, seed: seed, began: time.Now(),
		harms: map[string]int{}, outcomes: map[string]int{}, moves: map[string]int{}, checks: map[string]int{}, violations: map[string]int{},
	}
}

// shown is how many events a violation is printed with, and how many violations
// of one subject are printed.
const (
	shownEvents     = 40
	shownViolations = 3
)

// event writes down that something happened.
func (b *book) event(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := fmt.Sprintf("%s round %d: ", time.Now().Format(clock), b.round) + fmt.Sprintf(format, args...)
	b.recent = append(b.recent, line)
	b.recent = b.recent[max(0, len(b.recent)-shownEvents):]
	fmt.Fprintln(b.events, line)
}

// violated writes down that a promise was not kept, and what came before.
func (b *book) violated(subject, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	b.event("VIOLATION (%s): %s", subject, what)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.violations[subject]++
	if b.violations[subject] > shownViolations {
		return
	}
	fmt.Fprintf(b.out, "%s VIOLATION in round %d of seed %d (%s): %s\n", time.Now().Format(clock), b.round, b.seed, subject, what)
	if b.violations[subject] == 1 {
		fmt.Fprintf(b.out, "what came before:\n  %s\n", strings.Join(b.recent, "\n  "))
	}
}

// begin opens a window and returns what closes it.
func (b *book) begin(harm string) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.windows = append(b.windows, window{harm: harm, from: time.Now()})
	i := len(b.windows) - 1
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.windows[i].to = time.Now()
	}
}

// open returns the windows of this round.
func (b *book) open() []window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.windows)
}

// excusesAll reports whether a window is open, or was just now, that excuses
// whatever happens.
func (b *book) excusesAll() bool {
	now := time.Now()
	return slices.ContainsFunc(b.open(), func(w window) bool {
		return slices.Contains(excuses[w.harm], "*") && (w.to.IsZero() || now.Before(w.to.Add(afterwards)))
	})
}

// next begins a round. No window is open then.
func (b *book) next(round int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round, b.windows = round, nil
}

func (b *book) count(what map[string]int, name string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what[name] += n
}

// judge judges one call.
func (b *book) judge(o outcome, spared bool) {
	b.count(b.outcomes, o.String(), 1)
	for _, f := range judgeAnswer(o) {
		b.violated("answer", "%s", f)
	}
	for _, f := range judgeOutcome(o, spared, b.open()) {
		b.violated("outcome", "%s", f)
	}
}

// report prints all counts and returns how many violations there were.
func (b *book) report() (violations int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, "\n%d rounds of seed %d in %s\n", b.round+1, b.seed, time.Since(b.began).Round(time.Second))
	for _, part := range []struct {
		title  string
		counts map[string]int
	}{{"faults", b.harms}, {"calls", b.outcomes}, {"moves", b.moves}, {"checks", b.checks}, {"violations", b.violations}} {
		sum := 0
		for _, n := range part.counts {
			sum += n
		}
		fmt.Fprintf(b.out, "%s: %d\n", part.title, sum)
		for _, name := range slices.Sorted(maps.Keys(part.counts)) {
			fmt.Fprintf(b.out, "  %8d  %s\n", part.counts[name], name)
		}
		if part.title == "violations" {
			violations = sum
		}
	}
	return violations
}

// number is the round's.
func (b *book) number() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.round
}
