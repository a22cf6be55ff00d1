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
	Stdin  *os.File // what is written here reaches the process
	Stdout *os.File
	Stderr *os.File

	proc  *os.Process
	pid   int
	mark  string
	grace time.Duration
	log   *slog.Logger

	groups *groupTable // what the guard knows; nil without one
	slot   *int32      // this group's entry in it

	stopOnce sync.Once
	killOnce sync.Once
	stop     chan struct{} // closed when the process is to end
	kill     chan struct{} // closed when it is to end without grace

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
func (p *Process) Stop() { p.stopOnce.Do(func() { close(p.stop) }) }

// Kill ends the whole tree without grace. It returns at once.
func (p *Process) Kill() {
	p.killOnce.Do(func() { close(p.kill) })
	p.Stop()
}

// attend owns the process's end: it reaps the leader, sees the rest of the
// group off, and returns when all is done.
func (p *Process) attend() {
	defer close(p.gone)
	defer func() { p.groups.release(p.slot) }()

	leader := make(chan struct{})
	go func() {
		defer close(leader)
		awaitExit(p.proc) // leaves a zombie, whose pid nobody else can get
	}()

	stopping := false
	var strays []stray
	select {
	case <-leader:
	case <-p.stop:
		stopping = true
		strays = findStrays(p.pid, p.mark)
		p.signalTree(syscall.SIGTERM, strays)
		select {
		case <-leader:
		case <-p.kill:
		case <-time.After(p.grace):
		}
	}
	select {
	case <-leader:
		// The zombie still holds the group's id, so this cannot hit a
		// stranger. A tool's leftovers end with it, as systemd has it.
		p.signalGroup(syscall.SIGTERM)
	default:
		strays = append(strays, findStrays(p.pid, p.mark)...)
		p.signalTree(syscall.SIGKILL, strays)
		<-leader
	}
	p.reap()
	p.sweep(stopping, strays)
}

// reap collects the exit status. The leader is dead already, so it cannot block.
func (p *Process) reap() {
	state, err := p.proc.Wait()
	if err != nil {
		p.log.Error("reap", "pid", p.pid, "err", err)
	}
	p.state = state
	close(p.exited)
}

// sweep waits for what the leader left behind, until the grace is over, and
// then kills it. Strays are looked for only where the process was made to end:
// what leaves its group on purpose may outlive a call that ended well.
func (p *Process) sweep(stopping bool, strays []stray) {
	if !groupAlive(p.pid) && !anyAlive(strays) && !stopping {
		return
	}
	deadline := time.NewTimer(p.grace)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for groupAlive(p.pid) || anyAlive(strays) {
		select {
		case <-tick.C:
			continue
		case <-p.kill:
		case <-deadline.C:
		}
		break
	}
	if stopping {
		strays = append(strays, findStrays(p.pid, p.mark)...)
	}
	if groupAlive(p.pid) {
		p.signalGroup(syscall.SIGKILL)
	}
	for _, s := range strays {
		s.signal(syscall.SIGKILL)
	}
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
