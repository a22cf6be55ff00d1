package launch

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/trees"
)

// LocalProcess is a process on this machine and the group that it leads. Its methods may be called
// from any goroutine. The caller closes the streams.
type LocalProcess struct {
	streams

	local   *Local
	pid     int
	pidfd   int // closed by awaitExit; none if not available
	whole   bool
	alone   bool // it is the first of its pid namespace: its tree ends with it
	grace   time.Duration
	cell    *cgroup.Group // nil if it has none
	applied Applied

	traces
	stop
	outcome
	leaving
}

// leaving is how a process is given to the program that follows.
type leaving struct {
	watch *os.File      // its pidfd while attend waits for its end; guarded by stop.mu, as the field that follows
	given bool          // nothing is done with it any more
	left  chan struct{} // closed by attend when given
}

// streams are Orla's ends of a process's pipes.
type streams struct {
	Stdin  *os.File // nil with Spec.Input
	Stdout *os.File
	Stderr *os.File

	pipes   [3]int   // the same as descriptors, until openStreams makes them files; none for a missing one
	feed    *os.File // for the rest of Spec.Input; nil if all of it was written at once
	feeding sync.WaitGroup
}

// traces identify the processes of a tree.
type traces struct {
	mark   string
	tag    uint64        // the tag that descendants have inherited; 0 if there is none
	slot   *int32        // the group's entry in the guard's table; released when empty is set
	empty  bool          // whether the group was seen to be empty; owned by attend
	member trees.Process // a member of the group, as last seen alive; owned by attend
	since  uint64        // when the process was started; owned by end, then by attend
}

// stop is the state of ending a process.
type stop struct {
	killOnce sync.Once
	kill     chan struct{} // closed when the process has to end without grace
	ended    chan struct{} // closed when it has ended, before it is reaped
	ending   chan *ending  // receives what end did, if stopping

	mu       sync.Mutex    // guards the fields that follow
	stopping bool          // Finish or Stop was called before the end
	over     bool          // the process ended before Finish or Stop was called
	hurry    chan struct{} // closed by Stop after Finish; nil after Stop alone
}

// outcome is how a process ended.
type outcome struct {
	reaped    bool // set, like status and the two flags below, before exited is closed
	status    syscall.WaitStatus
	known     bool          // whether status is valid
	starved   bool          // it was killed because of its memory limit
	exited    chan struct{} // closed when the process itself is reaped
	leaveOnce sync.Once
	gone      chan struct{} // closed when nothing of its tree is left, or every way to end it was tried
}

// Pid is the id of the process and of its group.
func (p *LocalProcess) Pid() int { return p.pid }

// Exited is closed when the process itself has ended and is reaped. Its descendants may go on, and
// keep its streams open, until Gone is closed.
func (p *LocalProcess) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the process and its group are gone. With Spec.Whole, and after Finish, Stop
// and Kill, processes that left the group are gone as well. If SIGKILL does not end a process, that
// is logged and Gone is closed anyway; Exited is still closed only when the process ends.
func (p *LocalProcess) Gone() <-chan struct{} { return p.gone }

// Applied returns which of Spec.Limits are in effect.
func (p *LocalProcess) Applied() Applied { return p.applied }

// Finish ends the whole tree of a process that ends when its stdin is closed. It gives the tree
// patience to end by itself, and then does what Stop does. Each step ends as soon as the tree is
// empty (SPEC D11). Finish returns at once; wait for Exited or Gone. A further call does nothing.
//
// The caller closes Stdin right after the call, not before: a process that ends before the call has
// ended by itself, and its descendants get no grace.
func (p *LocalProcess) Finish(patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping || p.over {
		return
	}
	p.stopping = true
	p.hurry = make(chan struct{})
	go p.end(patience) // attend waits for it
}

// Stop ends the whole tree: SIGTERM, the grace, SIGKILL (SPEC C4). It returns at once; wait for
// Exited or Gone. It ends the patience of Finish; further calls do nothing.
func (p *LocalProcess) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over && !p.stopping:
	case !p.stopping:
		p.stopping = true
		go p.end(0) // attend waits for it
	case p.hurry != nil && !IsClosed(p.hurry):
		close(p.hurry)
	}
}

// Kill ends the whole tree without grace. It returns at once.
func (p *LocalProcess) Kill() {
	p.killOnce.Do(func() { close(p.kill) })
	p.Stop()
}

// openStreams makes files of Orla's ends of the pipes.
func (p *LocalProcess) openStreams() {
	for i, f := range [...]**os.File{&p.Stdin, &p.Stdout, &p.Stderr} {
		if fd := p.pipes[i]; fd != none {
			*f, p.pipes[i] = os.NewFile(uintptr(fd), "|"), none
		}
	}
}

// attend waits until the process ends, and does everything that follows.
func (p *LocalProcess) attend() {
	p.awaitExit() // a zombie remains, so no other process can get the pid
	p.mu.Lock()
	p.over = !p.given
	p.mu.Unlock()
	if p.given {
		close(p.left)
		return
	}
	p.depart(func(rest func()) { rest() })
}

// depart reaps the leader of a tree that has ended, and ends the rest of the tree. It passes the
// steps that may take time to later.
func (p *LocalProcess) depart(later func(rest func())) {
	close(p.ended)
	p.mu.Lock()
	p.over = true
	stopping := p.stopping
	p.mu.Unlock()
	if !stopping && (p.alone || !p.whole) {
		if p.reap(); p.alone || p.empty { // with alone, the kernel has killed the rest and waited for it
			p.finish()
			return
		}
	}
	later(func() {
		defer p.finish()
		switch {
		case stopping:
			e := <-p.ending // before reap, since end signals the group by its id
			if p.reap(); !p.alone {
				p.seeOut(e)
			}
		case p.whole:
			p.since = trees.StartOf(p.pid)
			p.killTree()
			rest := p.find(unseen()) // before reap, too: find still needs the id of the session
			p.reap()
			p.sweep(rest)
		default:
			p.reapGroup()
		}
	})
}

// finish releases the resources of the process.
func (p *LocalProcess) finish() {
	if !p.empty { // else groupLeft has released it
		p.local.groups.Release(p.slot)
	}
	p.local.cells.remove(p.pid)
	p.local.removeCell(p.cell)
	p.leave()
}

// leave closes gone: the process is gone, or Orla stops waiting for it.
func (p *LocalProcess) leave() {
	p.leaveOnce.Do(func() {
		close(p.gone)
		p.local.procs.Done()
	})
}

// reap collects the exit status. The leader is dead, so it does not block.
func (p *LocalProcess) reap() {
	_, err := syscall.Wait4(p.pid, &p.status, 0, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.pid, &p.status, 0, nil)
	}
	p.reaped, p.known = true, err == nil
	p.groupLeft() // at once: another group can get the id of an empty one now
	p.local.reaper.Forget(p.pid)
	if err != nil {
		p.local.log.Error("reap", "pid", p.pid, "err", err)
	}
	p.starved = p.cell.OutOfMemory()
	if p.feed != nil { // a descendant may hold the other end without reading
		_ = p.feed.SetWriteDeadline(time.Unix(1, 0))
		p.feeding.Wait()
	}
	close(p.exited)
}
