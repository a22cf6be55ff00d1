package launch

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads are started before the first process: one and a half times as
// many as serving many calls at once was seen to use, and those that callers of Run keep.
const spareThreads = 24 + maxStays

// reserveThreads makes the runtime start threads in advance, before a guard starts: a command that only looks at this
// machine needs no guard and few threads, and may run where a Pod has few. When a tool has used up the process
// limit of the user, the system refuses to make a thread, and then the runtime ends the whole
// program.
func reserveThreads() {
	var reserved, here sync.WaitGroup
	here.Add(spareThreads)
	for range spareThreads {
		reserved.Go(func() {
			runtime.LockOSThread() // so that each needs its own
			defer runtime.UnlockOSThread()
			here.Done()
			here.Wait()
		})
	}
	reserved.Wait()
}
