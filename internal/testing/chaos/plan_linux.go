package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// step is one harm at one moment of a round.
type step struct {
	at   time.Duration // after the round's beginning
	harm string        // its name among the harms
	tool string        // whom it is done to; "" when it is done to Orla or the machine
	long time.Duration // how long it goes on, where it does
	size int           // 0 to 999: how hard, or which way; each harm says what it makes of it
}

// round is a storm and what it spares: tools whose calls have to succeed for as
// long as nothing befalls Orla itself.
type round struct {
	number int
	spared []string
	steps  []step
}

// pace is the mean time from one step to the next.
const pace = 110 * time.Millisecond

// plan returns a round. It is a pure function of what it is given: the same seed
// makes the same plan on every machine.
func plan(seed uint64, number int, long time.Duration) round {
	dice := rand.New(rand.NewPCG(seed, uint64(number)))
	r := round{number: number}
	names := toolNames()
	for _, i := range dice.Perm(len(names))[:len(names)/3] {
		r.spared = append(r.spared, names[i])
	}
	victims := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(r.spared, name) })
	var weights int
	for _, h := range harms() {
		weights += h.weight
	}
	for at := between(dice, 0, 2*pace); at < long; at += between(dice, 0, 2*pace) {
		h := heaviest(dice.IntN(weights))
		s := step{at: at, harm: h.name, size: dice.IntN(1000), long: between(dice, h.least, h.most)}
		if fit := slices.DeleteFunc(slices.Clone(victims), func(name string) bool { return !h.fits(kindOf(name)) }); len(fit) > 0 {
			s.tool = fit[dice.IntN(len(fit))]
		}
		if h.to != global && s.tool == "" {
			continue // all whom it could befall are spared
		}
		if h.to == global {
			s.tool = ""
		}
		r.steps = append(r.steps, s)
	}
	// Orla's own end, now and then: what lives long is as worth a look.
	for _, end := range []struct {
		harm   string
		chance int // in a thousand
	}{{"orla killed", 200}, {"orla ended", 100}} {
		roll, at, size := dice.IntN(1000), between(dice, long/4, long), dice.IntN(1000)
		if roll < end.chance {
			r.steps = append(r.steps, step{at: at, harm: end.harm, size: size})
		}
	}
	slices.SortStableFunc(r.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return r
}

// heaviest returns the harm in whose share of the weights a number falls.
func heaviest(n int) harm {
	for _, h := range harms() {
		if n -= h.weight; n < 0 {
			return h
		}
	}
	panic("a number beyond the weights of all harms")
}

func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(dice.Int64N(int64(most-least)))
}
