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

// LocalProcess is one process of this machine and the group that it leads. Its methods may be
// called from any goroutine. The streams belong to the caller, who closes them.
type LocalProcess struct {
	streams

	local   *Local
	pid     int
	pidfd   int // closed by who waits for the end; none where there are none
	whole   bool
	alone   bool // it is the first of its pid namespace: when it has ended, so has all of its tree
	grace   time.Duration
	cell    *cgroup.Group // nil if it has none of its own
	applied Applied

	traces
	stop
	outcome
}

// streams are Orla's ends of a process's pipes.
type streams struct {
	Stdin  *os.File // what is written here reaches the process; nil with Spec.Input
	Stdout *os.File
	Stderr *os.File

	pipes   [3]int   // the same, until openStreams makes them files; none where there is nothing
	feed    *os.File // takes the rest of Spec.Input; nil when all of it went at once
	feeding sync.WaitGroup
}

// traces are what tells a process's tree from others.
type traces struct {
	mark   string
	tag    uint64        // what its descendants have inherited; 0 if there is none
	slot   *int32        // this group's entry in the table; released when empty is set
	empty  bool          // whether the group was seen empty; owned by attend
	member trees.Process // of the group, when it was last seen alive; owned by attend
	since  uint64        // when the process was started; owned by end, then by attend
}

// stop is how a process is ended.
type stop struct {
	killOnce sync.Once
	kill     chan struct{} // closed when the process is to end without grace
	ended    chan struct{} // closed when it has ended; it is reaped after that
	ending   chan *ending  // receives what end did, if it was in time

	mu       sync.Mutex    // guards the fields that follow
	stopping bool          // Finish or Stop was in time
	over     bool          // it was not
	hurry    chan struct{} // closed by Stop after Finish; nil after Stop alone
	hurried  bool          // whether it is closed
}

// outcome is how a process has ended.
type outcome struct {
	reaped    bool // set before exited is closed, with what follows
	status    syscall.WaitStatus
	known     bool          // whether status says anything
	starved   bool          // it was killed for its limit of memory
	exited    chan struct{} // closed when the process itself is reaped
	leaveOnce sync.Once
	gone      chan struct{} // closed when nothing of its tree is left, or all was tried
}

// Pid is the process's id, which is its group's id as well.
func (p *LocalProcess) Pid() int { return p.pid }

// Exited is closed when the process itself has ended and is reaped. What it
// forked may live on, and hold its streams open, until Gone is closed.
func (p *LocalProcess) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the process and its group are gone. With Spec.Whole, and
// after Finish, Stop and Kill, what left the group is gone as well. What
// SIGKILL does not end is logged and given up: then Gone is closed
// too, and Exited only when the process does end.
func (p *LocalProcess) Gone() <-chan struct{} { return p.gone }

// Applied tells which of Spec.Limits hold.
func (p *LocalProcess) Applied() Applied { return p.applied }

// Finish ends the whole tree of a process that is told to by the end of its
// input. The tree may take as long as patience to be gone by itself; then
// Finish does what Stop does. Each step ends as soon as the tree is empty (SPEC
// D11). It returns at once; wait on Exited or Gone. A further call does nothing.
//
// The caller closes Stdin right after the call, not before: a process that
// ends before it has ended by itself, and no grace is due to what it leaves.
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

// Stop asks the whole tree to end: SIGTERM, the grace, SIGKILL (SPEC C4). It
// returns at once; wait on Exited or Gone. It ends the patience of Finish;
// further calls do nothing.
func (p *LocalProcess) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over && !p.stopping:
	case !p.stopping:
		p.stopping = true
		go p.end(0) // attend waits for it
	case p.hurry != nil && !p.hurried:
		p.hurried = true
		close(p.hurry)
	}
}

// Kill ends the whole tree without grace. It returns at once.
func (p *LocalProcess) Kill() {
	p.killOnce.Do(func() { close(p.kill) })
	p.Stop()
}

// openStreams makes Orla's ends of the pipes files.
func (p *LocalProcess) openStreams() {
	for i, f := range [...]**os.File{&p.Stdin, &p.Stdout, &p.Stderr} {
		if fd := p.pipes[i]; fd != none {
			*f, p.pipes[i] = os.NewFile(uintptr(fd), "|"), none
		}
	}
}

// attend waits for the process's end, and returns when all is done that it asks for.
func (p *LocalProcess) attend() {
	awaitExit(p.pid, p.pidfd) // leaves a zombie, whose pid nobody else can get
	p.depart(func(rest func()) { rest() })
}

// depart does what is due when the process has ended: it reaps the leader, and
// sees the rest of the tree off. What of that may take time it gives to later.
func (p *LocalProcess) depart(later func(rest func())) {
	close(p.ended)
	p.mu.Lock()
	p.over = true
	stopping := p.stopping
	p.mu.Unlock()
	if !stopping && (p.alone || !p.whole) {
		if p.reap(); p.alone || p.empty { // of one that is alone the kernel has killed the rest, and waited for it
			p.finish()
			return
		}
	}
	later(func() {
		defer p.finish()
		switch {
		case stopping:
			e := <-p.ending // before the reaping, since end signals the group by its id
			if p.reap(); !p.alone {
				p.seeOut(e)
			}
		case p.whole:
			p.since = trees.StartOf(p.pid)
			p.killTree()
			rest := p.find(unseen()) // before the reaping too: the id still tells its session
			p.reap()
			p.sweep(rest)
		default:
			p.reapGroup()
		}
	})
}

// finish gives back what the process had.
func (p *LocalProcess) finish() {
	if !p.empty { // else it is released
		p.local.groups.Release(p.slot)
	}
	p.local.cells.remove(p.pid)
	p.local.removeCell(p.cell)
	p.leave()
}

// leave says that the process is gone, or that it is given up.
func (p *LocalProcess) leave() {
	p.leaveOnce.Do(func() {
		close(p.gone)
		p.local.procs.Done()
	})
}

// reap collects the exit status. The leader is dead already, so it cannot block.
func (p *LocalProcess) reap() {
	_, err := syscall.Wait4(p.pid, &p.status, 0, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.pid, &p.status, 0, nil)
	}
	p.reaped, p.known = true, err == nil
	p.groupLeft() // at once: an empty group's id is anybody's from now on
	p.local.reaper.Forget(p.pid)
	if err != nil {
		p.local.log.Error("reap", "pid", p.pid, "err", err)
	}
	p.starved = p.cell.OutOfMemory()
	if p.feed != nil { // a descendant may hold the other end, and not read
		_ = p.feed.SetWriteDeadline(time.Unix(1, 0))
		p.feeding.Wait()
	}
	close(p.exited)
}
