// Package slack lets the kernel wake the threads of this process a little late, and so less often.
//
// While calls follow each other, a thread of Go's runtime sleeps for 20 µs at a time to look for system calls
// that block, and a thread that takes a goroutine from another one sleeps for 3 µs before that. These sleeps took up
// to a quarter of Orla's CPU of a small call (docs/decisions/0036). The timer slack of a thread is how late the
// kernel may end them. The runtime's thread begins before any code of a program runs, so it has to inherit it.
package slack

import "time"

const (
	// wide is how late the timers of this process may be: much for the runtime, nothing for a deadline.
	wide = 500 * time.Microsecond
	// usual is what Linux gives to processes.
	usual = 50 * time.Microsecond
)
