package launch

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/launch/procfs"
)

const (
	// orphanPause is how long the first process of a container waits after SIGCHLD before it looks for
	// dead children, so that one look covers many.
	orphanPause = 100 * time.Millisecond
	// strayPause is the pause of any other process: its only orphans are the processes that a tool makes
	// Orla's children (CLONE_PARENT).
	strayPause = 5 * time.Second
)

// reaper reaps children that nothing else in Orla waits for: those that the first process of a
// container inherits, and those that a tool made Orla's children. A dead child keeps its pid until
// it is reaped (SPEC F3). reaper waits for each by its pid, since a wait for any child would take
// the exit status of tools.
type reaper struct {
	pause time.Duration
	first bool         // this is the first process: unknown dead children are orphans
	seen  map[int]bool // dead at the last look; owned by serve

	starting sync.RWMutex // held for reading during a fork, so that the new child is known before a look

	mu   sync.Mutex // guards own; never held during a fork, since other processes end meanwhile
	own  map[int]struct{}
	done chan struct{}
	over sync.WaitGroup
}

// newReaper returns a reaper. own are children of the program before that this one waits for.
func newReaper(pause time.Duration, own ...int) *reaper {
	r := &reaper{pause: pause, first: os.Getpid() == 1, own: map[int]struct{}{}, done: make(chan struct{})}
	for _, pid := range own {
		r.own[pid] = struct{}{}
	}
	if r.first {
		r.pause = orphanPause
	}
	died := make(chan os.Signal, 1) // one pending signal is enough
	signal.Notify(died, syscall.SIGCHLD)
	r.over.Go(func() {
		defer signal.Stop(died)
		r.serve(died)
	})
	return r
}

// serve looks for dead children after one has died. Until then it does not listen: each
// signal wakes three threads, and it would say nothing new. What dies in between is found by
// the look, which comes after serve listens again.
func (r *reaper) serve(died chan os.Signal) {
	for {
		if len(r.seen) == 0 {
			select {
			case <-died:
			case <-r.done:
				return
			}
		}
		signal.Stop(died)
		select {
		case <-time.After(r.pause):
		case <-r.done:
			return
		}
		signal.Notify(died, syscall.SIGCHLD)
		r.reap()
	}
}

// reap looks for dead children once. Other code in this program waits for the children that it
// started; so a process that is not the first one reaps a child only if two looks found it dead.
func (r *reaper) reap() {
	dead := map[int]bool{}
	for pid, st := range procfs.All() {
		if st.State == 'Z' && st.Parent == os.Getpid() {
			dead[pid] = true
		}
	}
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range dead {
		if _, own := r.own[pid]; own {
			delete(dead, pid)
		} else if r.first || r.seen[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // its exit status is not needed
			delete(dead, pid)
		}
	}
	r.seen = dead
}

// Starting calls start and registers the process as one that is waited for, until Forget.
func (r *reaper) Starting(start func() (pid int, err error)) (int, error) {
	r.starting.RLock()
	defer r.starting.RUnlock()
	pid, err := start()
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.own[pid] = struct{}{}
	}
	return pid, err
}

// Forget removes a process that was reaped.
func (r *reaper) Forget(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.own, pid)
}

func (r *reaper) close() {
	close(r.done)
	r.over.Wait()
}
