package launch

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// heirPause is how long the first process waits with its look for dead
// orphans, so that one look does for many.
const heirPause = 100 * time.Millisecond

// heir reaps what the first process of a container inherits: nobody else does,
// and a zombie keeps its id for ever (SPEC F3). It asks for each orphan by its
// id, since a wait for any child would take away the status of the tools.
type heir struct {
	mu   sync.Mutex // guards own; held while a child is started, so that none is taken for an orphan
	own  map[int]struct{}
	done chan struct{}
	over sync.WaitGroup
}

// newHeir returns nil where this process inherits nothing.
func newHeir() *heir {
	if os.Getpid() != 1 {
		return nil
	}
	h := &heir{own: map[int]struct{}{}, done: make(chan struct{})}
	died := make(chan os.Signal, 1) // one that waits stands for all
	signal.Notify(died, syscall.SIGCHLD)
	h.over.Go(func() {
		defer signal.Stop(died)
		h.serve(died)
	})
	return h
}

func (h *heir) serve(died <-chan os.Signal) {
	for {
		select {
		case <-died:
		case <-h.done:
			return
		}
		select {
		case <-time.After(heirPause):
		case <-h.done:
			return
		}
		h.reap()
	}
}

func (h *heir) reap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for pid, st := range readProcesses() {
		if _, own := h.own[pid]; !own && st.state == 'Z' && st.parent == os.Getpid() {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // nobody asks how it ended
		}
	}
}

// starting makes start's process one that is waited for. forget ends that.
func (h *heir) starting(start func() (pid int, err error)) (int, error) {
	if h == nil {
		return start()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := start()
	if err == nil {
		h.own[pid] = struct{}{}
	}
	return pid, err
}

// forget says that a process of ours is reaped.
func (h *heir) forget(pid int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.own, pid)
}

func (h *heir) close() {
	if h == nil {
		return
	}
	close(h.done)
	h.over.Wait()
}
