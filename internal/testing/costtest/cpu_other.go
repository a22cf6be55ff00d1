//go:build !linux

package costtest

import (
	"syscall"
	"time"
)

// used is the CPU time of this process, of all its threads.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
