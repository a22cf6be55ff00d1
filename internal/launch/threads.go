package launch

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads there are before the first process is
// started: what serving many calls at once has been seen to take, and half as
// much again, and those that callers of Run keep.
const spareThreads = 24 + maxStays

// reserveThreads makes the runtime start threads that it keeps for later. When
// a tool has used up the user's processes, none can be started any more, and
// the runtime ends the whole program when it wants one and is refused.
func reserveThreads() {
	var reserved sync.WaitGroup
	all := make(chan struct{})
	var here sync.WaitGroup
	here.Add(spareThreads)
	for range spareThreads {
		reserved.Go(func() {
			runtime.LockOSThread() // so that none serves two
			defer runtime.UnlockOSThread()
			here.Done()
			<-all
		})
	}
	here.Wait()
	close(all)
	reserved.Wait()
}
