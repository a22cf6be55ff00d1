package main

import (
	"cmp"
	"slices"
	"time"
)

// need is how much of something is used, and how much there is.
type need struct {
	of     string
	share  float64
	detail string
}

// memory is what one replica has in memory.
func (s Size) memory() float64 {
	sessions := float64(s.Sessions) / float64(s.Replicas)
	others := float64(s.Replicas - 1)
	held := float64(s.Capsules) / float64(s.Replicas)
	// Each replica is connected to each other that holds a capsule, and listens to each capsule.
	far := float64(s.Capsules) - held
	return baseMemory + sessions*((1-streamShare)*idleMemory+streamShare*streamMemory) +
		float64(s.Tools)*toolMemory + held*(heldMemory+others*listenMemory) + far*listenMemory/2 +
		2*others*connMemory // from it and to it
}

// apiServer is what the control plane does all the time, in processors.
func (s Size) apiServer() (renewals, events, capsules float64) {
	each := float64(s.Replicas) / leaseRenew.Seconds() // Leases in a second
	renewals = each * renewCPU.Seconds()
	events = each * float64(s.Replicas) * eventCPU.Seconds()
	return renewals, events, s.calls() * capsuleShare * lineCPU.Seconds()
}

// start is the processor time of the control plane when all replicas list the tools.
func (s Size) start() time.Duration { return time.Duration(s.Replicas*s.Tools) * listCPU }

// background is what a replica does all the time, as a share of its processors.
func (s Size) background() float64 {
	streams := float64(s.Sessions) / float64(s.Replicas) * streamShare * streamCPU.Seconds()
	leases := float64(s.Replicas) / leaseRenew.Seconds() * seenCPU.Seconds()
	return (streams + leases) / float64(s.Cores)
}

// needs are all that may be full, the fullest first.
func (s Size) needs(o *outcome) []need {
	renewals, events, capsules := s.apiServer()
	all := []need{
		{"processors of the replicas", o.replica + s.background(), "calls"},
		{"memory of a replica", s.memory() / memoryLimit, "sessions, tools, other replicas"},
		{"`max_sessions` of a replica", float64(s.Sessions) / float64(s.Replicas) / maxSessions, "sessions"},
		{"the busiest capsule", o.capsule, "its calls"},
		{"processors of the control plane", (renewals + events + capsules) / controlCores, "replicas², calls of capsules"},
	}
	slices.SortStableFunc(all, func(a, b need) int { return cmp.Compare(b.share, a.share) })
	return all
}
