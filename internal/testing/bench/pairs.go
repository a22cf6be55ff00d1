package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// pairs are servers that are compared two by two. Two servers of one build and one configuration differ by some
// percent for as long as they live: by where their memory lies, for example, and by when they collect garbage. So
// several pairs are started, one after the other, and what counts is the median over them.
type pairs[S any] struct {
	number int
	// open starts a server of the next pair, 0 the one to compare with or 1 the other.
	open func(ctx context.Context, which int) (server S, end func(), err error)
}

// job is what both servers of each pair do.
type job[S any] struct {
	what     string
	budget   time.Duration // for all pairs together
	inFlight int
	subject  func(S) subject
}

// paired is what the work of pairs costs.
type paired struct {
	p50, cpu   [2]time.Duration // of each of the two, the medians over pairs
	ratio      spread           // of the second one's p50 by the first one's
	pace       spread           // as in result
	byCPU, own spread           // of the CPU, in all and by the servers alone
	more       spread           // of the CPU, in nanoseconds
}

// compare lets each pair do all the work, before the next one is started. Which of the two is started first changes.
func (p pairs[S]) compare(ctx context.Context, all []job[S]) ([]paired, error) {
	found := make([][][]result, len(all))
	for pair := range p.number {
		if err := p.compareOne(ctx, pair%2, all, found); err != nil {
			return nil, err
		}
	}
	whole := make([]paired, len(all))
	for i := range all {
		whole[i] = pairedOf(found[i])
	}
	return whole, nil
}

// compareOne adds what one pair has found.
func (p pairs[S]) compareOne(ctx context.Context, first int, all []job[S], found [][][]result) error {
	var both [2]S
	for _, which := range []int{first, 1 - first} {
		server, end, err := p.open(ctx, which)
		if err != nil {
			return err
		}
		defer end()
		both[which] = server
	}
	for i, w := range all {
		subjects := []subject{w.subject(both[0]), w.subject(both[1])}
		results, err := compare(ctx, w.budget/time.Duration(p.number), 2*w.inFlight, w.inFlight, subjects)
		if err != nil {
			return fmt.Errorf("%s: %w", w.what, err)
		}
		found[i] = append(found[i], results)
	}
	return nil
}

// pairedOf sums up what pairs have found.
func pairedOf(found [][]result) paired {
	over := func(of func(first, second result) float64) spread {
		values := make([]float64, len(found))
		for i, both := range found {
			values[i] = of(both[0], both[1])
		}
		return spreadOf(values)
	}
	sum := paired{
		ratio: over(func(_, second result) float64 { return second.ratio }),
		pace:  over(func(_, second result) float64 { return second.pace }),
		byCPU: over(func(first, second result) float64 { return quotient(second.cpu.total(), first.cpu.total()) }),
		own:   over(func(first, second result) float64 { return quotient(second.cpu.own, first.cpu.own) }),
		more:  over(func(_, second result) float64 { return float64(second.more) }),
	}
	for which := range sum.p50 {
		var p50s, cpus []time.Duration
		for _, both := range found {
			p50s, cpus = append(p50s, both[which].p50), append(cpus, both[which].cpu.total())
		}
		sum.p50[which], sum.cpu[which] = median(p50s), median(cpus)
	}
	return sum
}

// spread is a number as pairs have it.
type spread struct{ median, least, most float64 }

// spreadOf returns the spread of values, which it sorts.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{median(values), slices.Min(values), slices.Max(values)}
}

// ofRatio writes from where to where a ratio goes.
func (s spread) ofRatio() string { return fmt.Sprintf("%.3f to %.3f", s.least, s.most) }

// ofMicros writes the same of a difference in nanoseconds.
func (s spread) ofMicros() string { return fmt.Sprintf("%+.1f to %+.1f", s.least/1e3, s.most/1e3) }
