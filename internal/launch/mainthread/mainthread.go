// Package mainthread runs functions on the main thread of the process. Children with a parent death signal
// survive an exec only if the main thread has forked them and the main thread calls exec
// (docs/decisions/0051).
package mainthread

import "sync/atomic"

var (
	tasks = make(chan func())
	kept  atomic.Bool // the main thread waits for tasks
)

// Run runs program in a goroutine of its own, and returns what it returns. Meanwhile it runs on the main thread
// what Do is given. main calls it, after an init function of package main has locked the main thread.
func Run(program func() int) int {
	kept.Store(true)
	defer kept.Store(false)
	ended := make(chan int, 1)
	go func() { ended <- program() }()
	for {
		select {
		case task := <-tasks:
			task()
		case code := <-ended:
			return code
		}
	}
}

// Kept reports whether Do works: Run is running.
func Kept() bool { return kept.Load() }

// Do runs a short function on the main thread, and returns when it has. It reports false, and does nothing, if
// Run is not running, as in tests.
func Do(f func()) bool {
	if !Kept() {
		return false
	}
	done := make(chan struct{})
	tasks <- func() {
		defer close(done)
		f()
	}
	<-done
	return true
}
