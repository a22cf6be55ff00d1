package launch

import (
	"slices"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/launch/trees"
)

const (
	// settle is how long the processes that a leader leaves in its group have to become daemons by
	// calling setsid.
	settle = 100 * time.Millisecond
	// firstPause is the time between the first two checks for live processes. It doubles up to
	// lookPause: most processes end right after SIGTERM.
	firstPause = time.Millisecond
	lookPause  = 20 * time.Millisecond
	// killPatience is how long to wait for a process to end after SIGKILL. One that takes longer hangs
	// in the kernel, or belongs to another user.
	killPatience = 5 * time.Second
)

// calmLooks is how many checks in a row must find no process outside the group, once one was found:
// a process that forks and exits all the time can escape a single check.
const calmLooks = 3

// rest is what is known about the processes of a tree outside its group.
type rest struct {
	strays []trees.Process
	calm   int // checks in a row that found none
}

// unseen is the state before the first check. One check that finds nothing is then enough.
func unseen() rest { return rest{calm: calmLooks - 1} }

// none reports whether no process is left.
func (r rest) none() bool { return r.calm >= calmLooks }

// ending records what end did before the leader ended.
type ending struct {
	rest     rest
	patience time.Time // until when the tree may end without a signal
	asked    bool      // whether SIGTERM was sent
	grace    time.Time // when SIGKILL follows; set if asked
}

// end makes the leader end, and sends attend a record of what it did.
func (p *LocalProcess) end(patience time.Duration) {
	e := &ending{rest: unseen(), patience: time.Now().Add(patience)}
	defer func() { p.ending <- e }()
	p.since = trees.StartOf(p.pid)
	if patience > 0 {
		e.rest = p.find(e.rest) // now: an orphan does not show which tree it belongs to
		if p.endsBy(e.patience, p.hurry) {
			return
		}
	}
	p.ask(e)
	if p.endsBy(e.grace, nil) {
		return
	}
	e.rest = p.find(e.rest)
	p.killTree()
	signalAll(e.rest.strays, syscall.SIGKILL)
	select {
	case <-p.ended:
	case <-time.After(killPatience):
		p.local.log.Error("the process does not die; it is given up", "pid", p.pid)
		p.leave()
	}
}

// endsBy waits until the leader ends, a moment is reached or hurry is closed. It reports whether the
// leader has ended.
func (p *LocalProcess) endsBy(moment time.Time, hurry <-chan struct{}) bool {
	late := time.NewTimer(time.Until(moment))
	defer late.Stop()
	select {
	case <-p.ended:
		return true
	case <-hurry:
	case <-p.kill:
	case <-late.C:
	}
	return false
}

// ask sends SIGTERM to the whole tree.
func (p *LocalProcess) ask(e *ending) {
	e.asked = true
	e.rest = p.find(e.rest)
	group := !p.reaped || p.groupLeft()                                      // until the leader is reaped, no other group can have the id
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // a stopped process cannot handle SIGTERM
		if group {
			p.signalGroup(sig)
		}
		signalAll(e.rest.strays, sig)
	}
	e.grace = time.Now().Add(p.grace)
}

// seeOut ends the rest of the tree of a process that was made to end.
func (p *LocalProcess) seeOut(e *ending) {
	left := func() bool {
		if p.groupLeft() || slices.ContainsFunc(e.rest.strays, trees.Process.Alive) {
			return true
		}
		e.rest = p.find(e.rest)
		return !e.rest.none()
	}
	if !e.asked {
		if p.await(time.Until(e.patience), p.hurry, left) {
			return
		}
		p.ask(e)
	}
	if !p.await(time.Until(e.grace), nil, left) {
		p.sweep(p.find(e.rest))
	}
}

// reapGroup ends the processes that a leader left in its group when it exited by itself, as systemd
// does. A process that left the group on purpose is a daemon and goes on.
func (p *LocalProcess) reapGroup() {
	if p.await(settle, nil, p.groupLeft) {
		return
	}
	p.signalGroup(syscall.SIGTERM)
	p.signalGroup(syscall.SIGCONT)
	if !p.await(p.grace, nil, p.groupLeft) {
		p.signalGroup(syscall.SIGKILL)
	}
}

// sweep kills the rest of the tree until nothing is left: a process may fork just before it is
// killed.
func (p *LocalProcess) sweep(r rest) {
	patience := time.Now().Add(killPatience)
	for pause := firstPause; ; pause = min(2*pause, lookPause) {
		group := p.groupLeft()
		switch {
		case !group && r.none():
			return
		case time.Now().After(patience):
			p.local.log.Error("processes do not die; they are given up", "pid", p.pid, "group_left", group, "strays", len(r.strays))
			return
		}
		p.cell.Kill()
		if group {
			p.signalGroup(syscall.SIGKILL)
		}
		signalAll(r.strays, syscall.SIGKILL)
		<-time.After(pause)
		r = p.find(r)
	}
}

// await waits until left reports false, for at most a given time, until hurry is closed or until
// Kill. It reports whether left has reported false.
func (p *LocalProcess) await(most time.Duration, hurry <-chan struct{}, left func() bool) bool {
	if !left() {
		return true
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for pause := firstPause; ; pause = min(2*pause, lookPause) {
		select {
		case <-time.After(pause):
			if !left() {
				return true
			}
		case <-hurry:
			return !left()
		case <-p.kill:
			return !left()
		case <-late.C:
			return !left()
		}
	}
}

// find looks for processes of the tree outside its group.
func (p *LocalProcess) find(known rest) rest {
	t := trees.Tree{Mark: p.mark, Tag: p.tag, Since: p.since}
	if !p.empty {
		t.Group = p.pid
	}
	strays, sure := p.local.finder.Outside(t, known.strays)
	strays = p.fromCell(strays)
	if !sure || len(strays) > 0 {
		return rest{strays: strays}
	}
	return rest{calm: known.calm + 1}
}

// groupLeft reports whether processes of the group are left after its leader was reaped. Once the
// group is empty, another group may get its id, so groupLeft does not check again and releases the
// guard's entry.
func (p *LocalProcess) groupLeft() bool {
	if !p.empty && !trees.GroupAlive(p.pid, &p.member) {
		p.empty = true
		p.local.groups.Release(p.slot)
	}
	return !p.empty
}

// killTree kills at once what the kernel can kill together: the cgroup and the group. The leader
// must not be reaped yet.
func (p *LocalProcess) killTree() {
	p.cell.Kill()
	p.signalGroup(syscall.SIGKILL)
}

// signalGroup sends a signal to the whole group. It is not an error if the group does not exist.
func (p *LocalProcess) signalGroup(sig syscall.Signal) {
	if err := syscall.Kill(-p.pid, sig); err != nil && err != syscall.ESRCH {
		p.local.log.Warn("signal", "pid", p.pid, "signal", sig.String(), "err", err)
	}
}

func signalAll(strays []trees.Process, sig syscall.Signal) {
	for _, s := range strays {
		s.Signal(sig)
	}
}
