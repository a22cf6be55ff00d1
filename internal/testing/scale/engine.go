package main

import (
	"container/heap"
	"time"
)

// clock is the time of a simulation, and what is going to happen. Events of one moment happen in the order in which
// they were planned, so that a run can be repeated.
type clock struct {
	now     time.Duration
	planned events
	count   int
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

// at plans something for a time that is not over.
func (c *clock) at(when time.Duration, do func()) {
	c.count++
	heap.Push(&c.planned, event{when, c.count, do})
}

// run lets everything happen that is planned, and what that plans.
func (c *clock) run() {
	for len(c.planned) > 0 {
		next := heap.Pop(&c.planned).(event) //nolint:forcetypeassert // nothing else is in it
		c.now = next.at
		next.do()
	}
}

// station is a queue with several servers. It serves those who come in their order.
type station struct {
	free []time.Duration // when each server has done all that it has
	busy time.Duration   // the work that was done
}

func newStation(servers int) *station { return &station{free: make([]time.Duration, servers)} }

// serve says when work is done that comes at a time. It must be asked in the order of time.
func (s *station) serve(now, work time.Duration) (done time.Duration) {
	first := 0
	for i, free := range s.free {
		if free < s.free[first] {
			first = i
		}
	}
	s.free[first] = max(now, s.free[first]) + work
	s.busy += work
	return s.free[first]
}

// visit is work at a station.
type visit struct {
	at   *station
	work time.Duration
}

// pass makes the visits one after the other, beginning now, and then calls end.
func (c *clock) pass(visits []visit, end func()) {
	if len(visits) == 0 {
		end()
		return
	}
	done := visits[0].at.serve(c.now, visits[0].work)
	c.at(done, func() { c.pass(visits[1:], end) })
}

// events is a heap by time.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) } //nolint:forcetypeassert // see run
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last].do = nil
	*e = (*e)[:last]
	return x
}
