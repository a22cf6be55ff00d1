package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load does n pieces of work, inFlight at a time, and returns how long each
// took.
type load func(n, inFlight int) ([]time.Duration, error)

// subject is something whose work is measured against that of others.
type subject struct {
	name string
	load load
	// cpu is what the process that does the work has used.
	cpu func() (cpu, error)
	// shared says that this process does other things between two loads.
	shared bool
}

// result is what one piece of a subject's work costs.
type result struct {
	p50   time.Duration // the median over rounds of each round's median
	ratio float64       // the median over rounds of p50 by the baseline's p50
	turn  time.Duration // the median over rounds of how long all took, by how many they were
	pace  float64       // the median over rounds of turn by the baseline's turn
	cpu   cpu           // on average
	more  time.Duration // the median over rounds of how much more CPU than the baseline in the same round

	rounds []time.Duration // each round's median
}

// against is the median over rounds of r's p50 by those of baselines together.
func (r result) against(baselines ...result) float64 {
	bases := make([][]time.Duration, len(baselines))
	for i, b := range baselines {
		bases[i] = b.rounds
	}
	return ratio(r.rounds, bases...)
}

// ratio is the median over rounds of a time by its baselines' together.
func ratio(rounds []time.Duration, baselines ...[]time.Duration) float64 {
	ratios := make([]float64, len(rounds))
	for i, took := range rounds {
		var base time.Duration
		for _, b := range baselines {
			base += b[i]
		}
		ratios[i] = quotient(took, base)
	}
	return median(ratios)
}

// subjectError is what went wrong with one subject.
type subjectError struct {
	name string
	err  error
}

func (e *subjectError) Error() string { return e.name + ": " + e.err.Error() }
func (e *subjectError) Unwrap() error { return e.err }

// minRounds are measured even when the time is over, unless it is over many
// times: then one round has to do.
const (
	minRounds  = 3
	mostBudget = 3
)

// turnTime is about how long a turn of the baseline takes: long enough that
// each process works mostly with warm caches, short enough that what disturbs
// the machine for longer disturbs all subjects alike.
const turnTime = 60 * time.Millisecond

// compare lets subjects work in turns until the time is over. A turn is least
// pieces of work, or more where they are short. The first subject is the
// baseline of the ratios. An error of a subject is a *subjectError.
func compare(ctx context.Context, budget time.Duration, least, inFlight int, subjects []subject) ([]result, error) {
	n := least
	for range 2 { // to warm up; the first ones take longer than others, and in a short turn what is around it counts more
		all, fits := time.Now(), n
		for i, s := range subjects {
			began := time.Now()
			if _, err := s.load(n, inFlight); err != nil {
				return nil, &subjectError{s.name, err}
			}
			if i == 0 {
				fits = fit(n, time.Since(began), min(turnTime, budget/time.Duration(2*len(subjects))))
			}
		}
		if n = min(fits, fit(n, time.Since(all), budget/minRounds)); n == least { // others may be much slower than the baseline
			break
		}
	}
	meters := make([]meter, len(subjects))
	for i, s := range subjects {
		if err := meters[i].start(s); err != nil {
			return nil, err
		}
	}
	p50s, turns := make([][]time.Duration, len(subjects)), make([][]time.Duration, len(subjects))
	rounds, began := 0, time.Now()
	again := func() bool {
		took := time.Since(began)
		return rounds == 0 || took < budget || rounds < minRounds && (took < mostBudget*budget || budget == 0)
	}
	for ; again(); rounds++ {
		for turn := range subjects {
			i := (turn + rounds) % len(subjects) // nobody always follows the same one
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			set := time.Now()
			took, err := meters[i].measure(subjects[i], n, inFlight)
			if err != nil {
				return nil, &subjectError{subjects[i].name, err}
			}
			turns[i] = append(turns[i], time.Since(set)/time.Duration(n))
			p50s[i] = append(p50s[i], median(took))
		}
	}
	results := make([]result, len(subjects))
	for i, s := range subjects {
		used, err := meters[i].stop(s)
		if err != nil {
			return nil, err
		}
		pieces := time.Duration(rounds * n)
		results[i].cpu = cpu{used.own / pieces, used.children / pieces}
		results[i].more = meters[i].more(&meters[0]) / time.Duration(n)
		results[i].rounds = p50s[i]
		results[i].p50 = median(slices.Clone(p50s[i])) // a clone, since median sorts
		results[i].ratio = results[i].against(results[0])
		results[i].turn, results[i].pace = median(slices.Clone(turns[i])), ratio(turns[i], turns[0])
	}
	return results, nil
}

// fit returns how many pieces of work fit into a turn when least of them took
// so long.
func fit(least int, took, turn time.Duration) int {
	return max(least, int(int64(least)*int64(turn)/max(1, int64(took))))
}

// meter adds up the CPU time of one subject.
type meter struct {
	before cpu             // of a process that does nothing else
	used   cpu             // of one that does
	turns  []time.Duration // what it had used when each turn began, and at last
}

// note notes what has been used so far.
func (m *meter) note(used cpu) { m.turns = append(m.turns, used.total()) }

// more is the median over rounds of how much more was used than by another from one turn to the next.
func (m *meter) more(than *meter) time.Duration {
	var all []time.Duration
	for i := range len(m.turns) - 1 {
		all = append(all, m.turns[i+1]-m.turns[i]-(than.turns[i+1]-than.turns[i]))
	}
	return median(all)
}

func (m *meter) start(s subject) (err error) {
	m.before, err = s.cpu()
	return err
}

// measure does one turn of work.
func (m *meter) measure(s subject, n, inFlight int) ([]time.Duration, error) {
	before, err := s.cpu()
	if err != nil {
		return nil, err
	}
	if !s.shared {
		m.note(before)
		return s.load(n, inFlight)
	}
	m.note(m.used)
	took, err := s.load(n, inFlight)
	if err != nil {
		return nil, err
	}
	after, err := s.cpu()
	m.used = m.used.plus(after.since(before))
	return took, err
}

// stop returns what the subject has used since start. A process that does
// nothing else is charged for what it does after its answers, too.
func (m *meter) stop(s subject) (cpu, error) {
	if s.shared {
		m.note(m.used)
		return m.used, nil
	}
	after, err := s.cpu()
	m.note(after)
	return after.since(m.before), err
}

// lanes does n pieces of work, inFlight at a time, and returns how long each
// took. Each piece is told its lane, in which nothing else goes on meanwhile.
func lanes(n, inFlight int, work func(lane int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	errs := make(chan error, inFlight) // each lane has one at most
	var taken atomic.Int64
	lane := func(number int) {
		for {
			i := int(taken.Add(1)) - 1
			if i >= n {
				return
			}
			began := time.Now()
			if err := work(number); err != nil {
				errs <- err
				return
			}
			took[i] = time.Since(began)
		}
	}
	if inFlight == 1 {
		lane(0) // no change of goroutine on the way
	} else {
		var wg sync.WaitGroup
		for number := range inFlight {
			wg.Go(func() { lane(number) })
		}
		wg.Wait()
	}
	close(errs)
	return took, <-errs
}
