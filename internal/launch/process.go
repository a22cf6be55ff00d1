package launch

import (
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// Process is one process and the group that it leads. Its methods may be
// called from any goroutine. The streams belong to the caller, who closes them.
type Process struct {
	Stdin  *os.File // what is written here reaches the process; nil with Spec.Input
	Stdout *os.File
	Stderr *os.File

	proc  *os.Process
	pid   int
	pidfd int // closed by awaitExit; -1 where there is none
	mark  string
	grace time.Duration
	log   *slog.Logger
	heir  *heir // must not take this process for an orphan; may be nil

	groups *groupTable // what the guard knows; nil without one
	slot   *int32      // this group's entry in it; released when empty is set
	empty  bool        // whether the group was seen empty; owned by attend

	killOnce sync.Once
	kill     chan struct{} // closed when the process is to end without grace
	ended    chan struct{} // closed when it has ended; it is reaped after that
	strays   chan []stray  // receives what end found, if Stop was in time

	mu       sync.Mutex // guards the fields that follow
	stopping bool       // Stop was in time
	over     bool       // it was not

	feed    *os.File // takes the rest of Spec.Input; nil when all of it went at once
	feeding sync.WaitGroup

	state  *os.ProcessState // set before exited is closed
	exited chan struct{}    // closed when the process itself is reaped
	gone   chan struct{}    // closed when nothing of its tree is left, or all was tried
}

// Pid is the process's id, which is its group's id as well.
func (p *Process) Pid() int { return p.pid }

// Exited is closed when the process itself has ended and is reaped. What it
// forked may live on for the grace time; see Gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the process and its group are gone.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// State tells how the process ended. It may be called only after Exited is closed.
func (p *Process) State() *os.ProcessState { return p.state }

// Stop asks the whole tree to end: SIGTERM, the grace, SIGKILL (SPEC C4). It
// returns at once; wait on Exited or Gone. Further calls do nothing.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping || p.over {
		return
	}
	p.stopping = true
	go func() { p.strays <- p.end() }() // attend waits for it
}

// Kill ends the whole tree without grace. It returns at once.
func (p *Process) Kill() {
	p.killOnce.Do(func() { close(p.kill) })
	p.Stop()
}

// attend owns the process's end: it reaps the leader, sees the rest of the
// tree off, and returns when all is done.
func (p *Process) attend() {
	defer close(p.gone)
	defer func() {
		if !p.empty { // else it is released
			p.groups.release(p.slot)
		}
	}()

	awaitExit(p.proc, p.pidfd) // leaves a zombie, whose pid nobody else can get
	close(p.ended)
	p.mu.Lock()
	p.over = true
	stopping := p.stopping
	p.mu.Unlock()
	if !stopping {
		p.reap()
		p.seeOff()
		return
	}
	strays := <-p.strays // before the reaping, since end signals the group by its id
	p.reap()
	p.sweep(strays)
}

// end makes the process end, and returns what left its group before.
func (p *Process) end() []stray {
	strays := findStrays(p.pid, p.mark, nil)
	p.signalTree(syscall.SIGTERM, strays)
	select {
	case <-p.ended:
		return strays
	case <-p.kill:
	case <-time.After(p.grace):
	}
	strays = findStrays(p.pid, p.mark, strays)
	p.signalTree(syscall.SIGKILL, strays)
	<-p.ended
	return strays
}

// reap collects the exit status. The leader is dead already, so it cannot block.
func (p *Process) reap() {
	state, err := p.proc.Wait()
	p.groupLeft() // at once: an empty group's id is anybody's from now on
	p.heir.forget(p.pid)
	if err != nil {
		p.log.Error("reap", "pid", p.pid, "err", err)
	}
	p.state = state
	if p.feed != nil { // a descendant may hold the other end, and not read
		_ = p.feed.SetWriteDeadline(time.Unix(1, 0))
		p.feeding.Wait()
	}
	close(p.exited)
}

// settle is how long what a leader leaves in its group has to become a daemon
// by a session of its own.
const settle = 100 * time.Millisecond

// seeOff ends what a leader that ended by itself left in its group, as systemd
// has it. What left the group on purpose may live on: it is a daemon.
func (p *Process) seeOff() {
	if p.await(settle, p.groupLeft) {
		return
	}
	p.signalTree(syscall.SIGTERM, nil)
	if !p.await(p.grace, p.groupLeft) {
		p.signalGroup(syscall.SIGKILL)
	}
}

// sweep ends what is left of the tree of a process that was made to end.
func (p *Process) sweep(strays []stray) {
	p.await(p.grace, func() bool { return p.groupLeft() || anyAlive(strays) })
	if p.groupLeft() {
		p.signalGroup(syscall.SIGKILL)
	}
	// What is killed may have forked just before, so look until there is nothing.
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for range sweepLooks {
		if strays = findStrays(0, p.mark, strays); len(strays) == 0 {
			return
		}
		for _, s := range strays {
			s.signal(syscall.SIGKILL)
		}
		<-tick.C
	}
	p.log.Warn("processes do not die", "pid", p.pid, "count", len(strays))
}

const (
	// lookPause is the time between two looks at what is alive.
	lookPause = 20 * time.Millisecond
	// sweepLooks bounds the looks for what does not die: a second of them.
	sweepLooks = 50
)

// await waits until nothing is alive, for a time at most or until Kill. It
// reports whether nothing is.
func (p *Process) await(most time.Duration, alive func() bool) bool {
	if !alive() {
		return true
	}
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !alive() {
				return true
			}
		case <-p.kill:
			return !alive()
		case <-deadline.C:
			return !alive()
		}
	}
}

// groupLeft reports whether the group outlives its reaped leader. Once it is
// empty its id may be a stranger's, so it is never asked for again, and the
// guard is not told of it any more.
func (p *Process) groupLeft() bool {
	if !p.empty && !groupAlive(p.pid) {
		p.empty = true
		p.groups.release(p.slot)
	}
	return !p.empty
}

func (p *Process) signalTree(sig syscall.Signal, strays []stray) {
	p.signalGroup(sig)
	for _, s := range strays {
		s.signal(sig)
	}
	if sig == syscall.SIGTERM {
		p.signalGroup(syscall.SIGCONT) // a stopped process cannot obey
	}
}

// signalGroup signals the whole group. No such group is success.
func (p *Process) signalGroup(sig syscall.Signal) {
	if err := syscall.Kill(-p.pid, sig); err != nil && err != syscall.ESRCH {
		p.log.Warn("signal", "pid", p.pid, "signal", sig.String(), "err", err)
	}
}

func anyAlive(strays []stray) bool {
	for _, s := range strays {
		if s.alive() {
			return true
		}
	}
	return false
}
