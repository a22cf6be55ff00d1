package launch

import (
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/launch/trees"
)

const (
	// settle is how long what a leader leaves in its group has to become a
	// daemon by a session of its own.
	settle = 100 * time.Millisecond
	// firstPause is the time between the first two looks at what is alive. It
	// doubles up to lookPause: most of what is asked to end does so at once.
	firstPause = time.Millisecond
	lookPause  = 20 * time.Millisecond
	// killPatience is how long what was sent SIGKILL has to be gone. What takes
	// longer hangs in the kernel, or belongs to another user.
	killPatience = 5 * time.Second
)

// calmLooks is how many looks in a row must find nothing of a tree that was seen
// outside its group: what forks and exits without pause can slip through one.
const calmLooks = 3

// rest is what is known to be left of a tree outside its group.
type rest struct {
	strays []trees.Process
	calm   int // looks in a row that found nothing
}

// unseen is what is known before the first look, which is believed when it
// finds nothing.
func unseen() rest { return rest{calm: calmLooks - 1} }

// none reports whether nothing is left.
func (r rest) none() bool { return r.calm >= calmLooks }

// ending is what end did before the leader ended.
type ending struct {
	rest     rest
	patience time.Time // until when the tree may end by itself
	asked    bool      // whether it was sent SIGTERM
	grace    time.Time // until when it may obey; set with asked
}

// end makes the leader end, and tells attend what it did.
func (p *LocalProcess) end(patience time.Duration) {
	e := &ending{rest: unseen(), patience: time.Now().Add(patience)}
	defer func() { p.ending <- e }()
	p.since = trees.StartOf(p.pid)
	if patience > 0 {
		e.rest = p.find(e.rest) // now: an orphan does not tell whose it was
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

// endsBy waits for the leader's end, until a moment at most. It reports whether
// the leader has ended.
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
	group := !p.reaped || p.groupLeft()                                      // until the leader is reaped the id is its own
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // a stopped process cannot obey
		if group {
			p.signalGroup(sig)
		}
		signalAll(e.rest.strays, sig)
	}
	e.grace = time.Now().Add(p.grace)
}

// seeOut ends what is left of the tree of a process that was made to end.
func (p *LocalProcess) seeOut(e *ending) {
	left := func() bool {
		if p.groupLeft() || anyAlive(e.rest.strays) {
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

// reapGroup ends the processes that a leader left in its group when it ended by itself, as systemd
// does. A process that left the group on purpose is a daemon and may go on.
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

// sweep kills what is left of the tree until there is nothing: what is killed
// may have forked just before.
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

// await waits until nothing is left, for a time at most, until hurry or until
// Kill. It reports whether nothing is.
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

// find looks for what is left of the tree outside its group.
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

// groupLeft reports whether the group outlives its reaped leader. Once it is
// empty its id may be a stranger's, so it is never asked for again, and the
// guard is not told of it any more.
func (p *LocalProcess) groupLeft() bool {
	if !p.empty && !trees.GroupAlive(p.pid, &p.member) {
		p.empty = true
		p.local.groups.Release(p.slot)
	}
	return !p.empty
}

// killTree kills what the kernel knows to belong together, at once: the cgroup,
// which nothing has left, and the group. The leader is not reaped yet.
func (p *LocalProcess) killTree() {
	p.cell.Kill()
	p.signalGroup(syscall.SIGKILL)
}

// signalGroup signals the whole group. No such group is success.
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

func anyAlive(strays []trees.Process) bool {
	for _, s := range strays {
		if s.Alive() {
			return true
		}
	}
	return false
}
