// Package cgroup keeps each of Orla's capsules in a control group of its own,
// where systemd or somebody else has delegated a part of the cgroup v2 tree to
// Orla (SPEC K3). What nobody delegated it never touches: then there is no
// Root, and nothing is bounded or killed by it.
//
//	orla.service             delegated: the Root
//	├─ orla.main             Orla, its guard and its simple tools
//	├─ capsule-weather       a Group
//	└─ capsule-weather~2     another one, that is to replace it
//
// A controller may be missing at any level: each limit says for itself whether
// it holds.
package cgroup

// Limits bound what all processes of a Group may take together. Zero is no bound.
type Limits struct {
	Memory int64   // bytes, swap included
	CPUs   float64 // 0.5 is half of one
	Pids   int     // processes and threads
}

// Usage is what the processes of a Group take.
type Usage struct {
	Memory    int64 // bytes that cannot be given up at once; 0 where they are not counted
	CPU       int64 // microseconds spent, by those that have ended as well
	Processes []int
}
