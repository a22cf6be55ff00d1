package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// outcome is what a simulation of calls has seen.
type outcome struct {
	Came, Answered int
	Forwarded, Far int // calls that came to another replica than the session's; whose capsule another replica holds
	Length         time.Duration
	waits          []time.Duration // how long each call took, sorted
	replica        float64         // share of the replicas' processors in use
	capsule        float64         // share of its time in which the busiest capsule works
	perCall        time.Duration   // of the replicas' processors
}

// quantile is how long at most a share of the calls took.
func (o *outcome) quantile(share float64) time.Duration {
	if len(o.waits) == 0 {
		return 0
	}
	return o.waits[min(int(share*float64(len(o.waits))), len(o.waits)-1)]
}

// inFlight is how many calls some of the replicas have at a moment, by Little's law.
func (o *outcome) inFlight(s Size, replicas int) int {
	var all time.Duration
	for _, wait := range o.waits {
		all += wait
	}
	at := all.Seconds() / o.Length.Seconds()
	return int(math.Ceil(at * float64(replicas) / float64(s.Replicas)))
}

// simulateCalls lets calls come for some time, at random times of a constant rate, from random sessions, to random
// replicas. It ends when all are answered.
func simulateCalls(s Size, length time.Duration, seed uint64) *outcome {
	random := rand.New(rand.NewPCG(seed, uint64(s.Replicas)))
	replicas, capsules := make([]*station, s.Replicas), make([]*station, s.Capsules)
	for i := range replicas {
		replicas[i] = newStation(s.Cores)
	}
	for i := range capsules {
		capsules[i] = newStation(1)
	}
	c, o := &clock{}, &outcome{Length: length}
	var come func()
	come = func() {
		o.Came++
		began := c.now
		c.pass(o.way(s, random, replicas, capsules), func() {
			o.Answered++
			o.waits = append(o.waits, c.now-began)
		})
		if next := c.now + between(random, s.calls()); next < length {
			c.at(next, come)
		}
	}
	c.at(between(random, s.calls()), come)
	c.run()
	o.finish(replicas, capsules)
	return o
}

// between is the time between two events that happen independently of each other, so many in a second.
func between(random *rand.Rand, rate float64) time.Duration {
	return time.Duration(random.ExpFloat64() / rate * float64(time.Second))
}

// way is what a call visits. The balancer knows nothing of sessions and capsules.
func (o *outcome) way(s Size, random *rand.Rand, replicas, capsules []*station) []visit {
	entry, home := random.IntN(s.Replicas), random.IntN(s.Sessions)%s.Replicas
	visits := make([]visit, 0, 5)
	if entry != home {
		o.Forwarded++
		visits = append(visits, visit{replicas[entry], forwardCPU / 2}, visit{replicas[home], forwardCPU / 2})
	}
	visits = append(visits, visit{replicas[home], callCPU})
	if random.Float64() >= capsuleShare {
		return visits // a service elsewhere answers it
	}
	capsule := random.IntN(s.Capsules)
	if holder := capsule % s.Replicas; holder != home {
		o.Far++
		visits = append(visits, visit{replicas[home], forwardCPU / 2}, visit{replicas[holder], forwardCPU/2 + callCPU})
	}
	return append(visits, visit{capsules[capsule], capsuleWork})
}

func (o *outcome) finish(replicas, capsules []*station) {
	slices.Sort(o.waits)
	var all time.Duration
	for _, r := range replicas {
		all += r.busy
	}
	o.replica = share(all, o.Length*time.Duration(len(replicas)*len(replicas[0].free)))
	for _, c := range capsules {
		o.capsule = max(o.capsule, share(c.busy, o.Length))
	}
	o.perCall = all / time.Duration(max(o.Came, 1))
}

func share(part, whole time.Duration) float64 { return float64(part) / float64(whole) }
