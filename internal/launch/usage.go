package launch

import "time"

// Usage is the resource usage of a process's tree at one moment.
type Usage struct {
	RSS       int64         // bytes of memory in use
	CPU       time.Duration // CPU time, including that of processes that have ended and were waited for
	Processes int
}
