package launch

import (
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// census looks for what left the groups of this Orla's processes. Many may want
// to know at one time, as when Orla stops: those share a look, so that a
// hundred trees cost little more than one.
type census struct {
	instance string
	groups   *groupTable
	turn     sync.Mutex // held by whoever looks
	mu       sync.Mutex // guards next; taken after turn
	next     *look      // has not begun; nil when nobody waits
}

func newCensus(instance string, groups *groupTable) *census {
	return &census{instance: instance, groups: groups}
}

// strays returns what is alive of a tree outside its group: what bears the
// mark or the tag, what belongs to the group or to one of known, and what belongs to such
// a process. It is sure unless Orla had no descriptor left to look with.
func (c *census) strays(t tree, known []stray) (found []stray, sure bool) {
	l := c.join(t.since)
	if !l.sure {
		return known, false
	}
	ours := map[int]bool{}
	for pid, st := range l.procs {
		if t.group != 0 && (st.group == t.group || st.session == t.group) || slices.Contains(l.marks[pid], t.mark) || t.tag != 0 && l.tags[pid] == t.tag {
			ours[pid] = true
		}
	}
	for _, s := range known {
		if l.procs[s.pid].start == s.start {
			ours[s.pid] = true
		}
	}
	own, _ := unix.Getsid(0) // it has no error
	complete(ours, l.procs, own)
	for pid := range ours {
		if st := l.procs[pid]; !st.dead() && (t.group == 0 || st.group != t.group) {
			found = append(found, stray{pid, st.start})
		}
	}
	return found, true
}

// join returns a look that began after the call.
func (c *census) join(since uint64) *look {
	c.mu.Lock()
	if l := c.next; l != nil {
		l.since = min(l.since, since)
		c.mu.Unlock()
		<-l.done
		return l
	}
	l := &look{since: since, done: make(chan struct{})}
	c.next = l
	c.mu.Unlock()

	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	c.next = nil // whoever comes now wants one that begins later
	c.mu.Unlock()
	defer close(l.done)
	l.everywhere(c.instance, c.groups.groups())
	return l
}

// look is one look at all processes. What a process's session says costs a
// fraction of what its files in /proc do, so most are ruled out by it.
type look struct {
	since uint64        // what was started before is of no interest
	done  chan struct{} // closed when the fields that follow may be read

	sure  bool             // whether it was possible to look
	procs map[int]procStat // what may belong to a tree, and the members of all groups
	marks map[int][]string // the marks of this instance on those that left their group's session
	tags  map[int]uint64   // the tags of the same
	older map[int]bool     // sessions whose leaders are of no interest
}

// listings bounds how often one look lists all processes.
const listings = 4

// everywhere looks at all processes, and at what they have started meanwhile: one
// that is listed may start another, and be gone before it is looked at.
func (l *look) everywhere(instance string, groups []int) {
	l.procs, l.marks, l.older = map[int]procStat{}, map[int][]string{}, map[int]bool{}
	l.tags = map[int]uint64{}
	led := make(map[int]bool, len(groups)) // sessions that tell whose their processes are
	for _, group := range groups {
		led[group] = true
	}
	asked := map[int]bool{os.Getpid(): true}
	for range listings {
		pids, err := processIDs()
		if err != nil {
			return
		}
		found := false
		for _, pid := range pids {
			if asked[pid] {
				continue
			}
			asked[pid], found = true, true
			if outOfFiles(l.ask(pid, led, instance+".")) {
				return
			}
		}
		if !found {
			break
		}
	}
	l.sure = true
}

func (l *look) ask(pid int, led map[int]bool, prefix string) error {
	session, err := unix.Getsid(pid)
	switch {
	case err != nil:
		return err
	case session == 0, l.older[session]: // 0 is the kernel's, or not from this container
		return nil
	case led[session]:
		group, err := unix.Getpgid(pid)
		if err == nil && group == session { // a plain member, whose files tell nothing more
			l.procs[pid] = procStat{group: group, session: session}
			return nil
		}
	}
	st, err := statOf(pid)
	if err != nil {
		return err
	}
	if st.start < l.since {
		if pid == session {
			l.older[session] = true
		}
		return nil
	}
	l.procs[pid] = st
	if led[session] {
		return nil
	}
	if tag := tagOf(pid); tag != 0 {
		l.tags[pid] = tag
	}
	environ, err := environOf(pid)
	for _, mark := range marksIn(environ) {
		if strings.HasPrefix(mark, prefix) {
			l.marks[pid] = append(l.marks[pid], mark)
		}
	}
	return err
}
