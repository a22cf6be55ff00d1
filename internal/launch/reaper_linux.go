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
	// orphanPause is how long the first process of a container waits with its look for
	// dead children, so that one look does for many.
	orphanPause = 100 * time.Millisecond
	// strayPause is the same for any other process: only a tool that makes children of
	// Orla's (CLONE_PARENT) gives it any.
	strayPause = 5 * time.Second
)

// reaper takes note of the end of children that nobody waits for: what the first process of
// a container inherits, and what a tool makes a child of Orla's. A dead one keeps its id for
// ever otherwise (SPEC F3). It asks for each by its id, since a wait for any child would take
// away how a tool ended.
type reaper struct {
	pause time.Duration
	first bool         // this is the first process, whose dead children are orphans
	seen  map[int]bool // dead at the last look, too; owned by serve

	mu   sync.Mutex // guards own; held while a child is started, so that none is taken for another's
	own  map[int]struct{}
	done chan struct{}
	over sync.WaitGroup
}

func newReaper(pause time.Duration) *reaper {
	r := &reaper{pause: pause, first: os.Getpid() == 1, own: map[int]struct{}{}, done: make(chan struct{})}
	if r.first {
		r.pause = orphanPause
	}
	died := make(chan os.Signal, 1) // one that waits stands for all
	signal.Notify(died, syscall.SIGCHLD)
	r.over.Go(func() {
		defer signal.Stop(died)
		r.serve(died)
	})
	return r
}

func (r *reaper) serve(died <-chan os.Signal) {
	for {
		if len(r.seen) == 0 {
			select {
			case <-died:
			case <-r.done:
				return
			}
		}
		select {
		case <-time.After(r.pause):
		case <-r.done:
			return
		}
		r.reap()
	}
}

// reap looks for dead children once. Those that others of this program have started are
// waited for by them; so one that is not the first process's own is left alone until it has
// been dead at two looks.
func (r *reaper) reap() {
	dead := map[int]bool{}
	for pid, st := range procfs.All() {
		if st.State == 'Z' && st.Parent == os.Getpid() {
			dead[pid] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range dead {
		if _, own := r.own[pid]; own {
			delete(dead, pid)
		} else if r.first || r.seen[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // nobody asks how it ended
			delete(dead, pid)
		}
	}
	r.seen = dead
}

// Starting makes start's process one that is waited for. Forget ends that.
func (r *reaper) Starting(start func() (pid int, err error)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := start()
	if err == nil {
		r.own[pid] = struct{}{}
	}
	return pid, err
}

// Forget says that a process of ours is reaped.
func (r *reaper) Forget(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.own, pid)
}

func (r *reaper) close() {
	close(r.done)
	r.over.Wait()
}
