// Package cgroup gives each of Orla's capsules a control group of its own, if systemd or an operator
// has delegated a part of the cgroup v2 tree to Orla (SPEC K3). It changes nothing that is not
// delegated: without a Root, no process is limited or killed by a cgroup.
//
//	orla.service             delegated: the Root
//	├─ orla.main             Orla, its guard and its simple tools
//	├─ capsule-weather       a Group
//	└─ capsule-weather~2     another Group, which will replace the first
//
// Any controller may be missing at any level. Applied tells for each limit whether the kernel enforces
// it.
package cgroup

// Limits are the limits of all processes of a Group together. Zero means no limit.
type Limits struct {
	Memory int64   // bytes, including swap
	CPUs   float64 // 0.5 is half a CPU
	Pids   int     // processes and threads
}

// State is a Group that is given to the program that follows in this process (docs/decisions/0051).
type State struct {
	Name    string `json:"name"`
	Applied Limits `json:"applied"`
}

// Kept is what is to stay of a Root of the program before.
type Kept struct {
	Dir   string   `json:"dir"`   // of the Root
	Names []string `json:"names"` // of the Groups
}

// Usage is the resource usage of the processes of a Group.
type Usage struct {
	Memory    int64 // bytes, without page cache that can be freed at once; 0 if not counted
	CPU       int64 // microseconds, including those of processes that have ended
	Processes []int
}
