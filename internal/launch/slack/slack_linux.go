package slack

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Widen executes this program again in this process, with a wide timer slack. Descriptors that are not closed by
// that stay open. It returns if the slack is wide already, or if that is not possible. Call it on the main thread,
// before anything else is done.
func Widen() {
	before := current()
	if before >= wide || !set(wide) {
		return
	}
	if path, err := os.Executable(); err == nil {
		_ = syscall.Exec(path, os.Args, os.Environ()) // if it fails, calls cost more
	}
	set(before)
}

// Usual starts a process that has the usual timer slack. It is called with its thread locked.
func Usual(start func() (pid int, err error)) (int, error) {
	if before := current(); before > usual && set(usual) { // a process inherits the slack of the thread that forks it
		defer set(before)
	}
	return start()
}

// current is the timer slack of this thread; 0 if it is not known.
func current() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// set changes the timer slack of this thread, and reports whether it has that now: the kernel changes nothing
// for threads with real-time priority.
func set(d time.Duration) bool {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
	return current() == d
}
