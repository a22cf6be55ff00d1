package launch

import "time"

// Usage is what the tree of a process takes at one moment.
type Usage struct {
	RSS       int64         // bytes of memory that are in use
	CPU       time.Duration // spent, by what has ended and was waited for as well
	Processes int
}
