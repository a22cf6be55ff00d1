package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// loss is what it costs to lose a zone.
type loss struct {
	Replicas, Sessions, Capsules int             // that were there
	Pods                         int             // capsules whose Pod was there
	detected                     time.Duration   // when the last of the others knows that the replicas are gone
	resumed                      []time.Duration // when each session was there again that has called within a minute; sorted
	waited                       int             // sessions that called before that was known
	moved                        []time.Duration // when each capsule was READY again whose node is still there; sorted
	rebuilt                      []time.Duration // when each was whose Pod was in the zone; sorted
	replica                      float64         // share of the processors of what is left, in the minute after
}

// observed is how long the simulation looks at sessions after the loss.
const observed = time.Minute

// simulateLoss lets all of one zone go at once. Others know it when the Leases are over. Sessions are resumed when they
// call again, capsules at once.
func simulateLoss(s Size, before *outcome, seed uint64) *loss {
	random := rand.New(rand.NewPCG(seed, 2))
	l := &loss{Replicas: s.Replicas / zones}
	if s.Replicas < zones {
		l.Replicas = s.Replicas // all of them are in one zone, and start again elsewhere
	}
	left := max(s.Replicas-l.Replicas, 1)
	c := &clock{}
	gone := make([]time.Duration, l.Replicas)
	for i := range gone {
		// Its last renewal was at some time before; the others look every second.
		age := time.Duration(random.Int64N(int64(leaseRenew)))
		gone[i] = leaseLasts - age + time.Duration(random.Int64N(int64(leaseLook)))
		if s.Replicas < zones {
			gone[i] = nodeGone + podStart
		}
		l.detected = max(l.detected, gone[i])
	}
	l.sessions(s, random, c, gone, left)
	l.capsules(s, random, c, gone)
	c.run()
	slices.Sort(l.resumed)
	slices.Sort(l.moved)
	slices.Sort(l.rebuilt)
	again := time.Duration(len(l.resumed)) * beginCPU
	l.replica = (before.replica+s.background())*float64(s.Replicas)/float64(left) + share(again, observed*time.Duration(left*s.Cores))
	return l
}

// sessions plans the next call of each session that a replica of the zone had.
func (l *loss) sessions(s Size, random *rand.Rand, c *clock, gone []time.Duration, left int) {
	heirs := make([]*station, left)
	for i := range heirs {
		heirs[i] = newStation(s.Cores)
	}
	l.Sessions = s.Sessions * len(gone) / s.Replicas
	for i := range l.Sessions {
		calls := between(random, s.Rate)
		if calls > observed {
			continue
		}
		known := gone[i%len(gone)]
		if calls < known {
			l.waited++
		}
		heir := heirs[random.IntN(left)]
		c.at(max(calls, known), func() {
			c.pass([]visit{{heir, beginCPU + callCPU}}, func() { l.resumed = append(l.resumed, c.now) })
		})
	}
}

// capsules plans a new process for each capsule whose replica or whose Pod was in the zone.
func (l *loss) capsules(s Size, random *rand.Rand, c *clock, gone []time.Duration) {
	control, scheduler := newStation(controlCores), newStation(1)
	for i := range s.Capsules {
		held := i%s.Replicas < len(gone)
		pod := random.IntN(zones) == 0
		if s.Replicas < zones {
			pod = true // one zone has all
		}
		if !held && !pod {
			continue
		}
		begin := time.Duration(0)
		if held {
			l.Capsules++
			begin = gone[i%len(gone)]
		}
		again := &l.moved
		if pod {
			l.Pods++
			begin = max(begin, nodeGone) // the API server has the old Pod until then, and refuses another
			again = &l.rebuilt
		}
		c.at(begin, func() {
			work := []visit{{control, renewCPU + podCPU}, {scheduler, time.Second / podsPerSecond}}
			c.pass(work, func() {
				c.at(c.now+podStart+handshake, func() { *again = append(*again, c.now) })
			})
		})
	}
}
