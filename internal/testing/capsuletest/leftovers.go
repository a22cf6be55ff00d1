package capsuletest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// leftBehind says which goroutines and descriptors there are that were not
// there before; "" for none.
func leftBehind(before map[string]string, patience time.Duration) string {
	deadline := time.Now().Add(patience)
	for {
		left := strangers()
		for fd, target := range descriptors() {
			if before[fd] != target {
				left = append(left, fmt.Sprintf("descriptor %s: %s", fd, target))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// strangers returns the stacks of the goroutines that no test binary has
// without its tests.
func strangers() []string {
	buf := make([]byte, 4<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "capsuletest.leftBehind(") &&
			!strings.Contains(stack, "os/signal.signal_recv") &&
			!strings.Contains(stack, "os/signal.loop") &&
			!strings.Contains(stack, "runtime.ensureSigM") {
			left = append(left, stack)
		}
	}
	return left
}

// descriptors returns what this process has open, by number, less what the
// runtime opens for itself. It is empty where the system does not tell.
func descriptors() map[string]string {
	open := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") {
			continue // it was the folder's own, or the poller's
		}
		open[e.Name()] = target
	}
	return open
}
