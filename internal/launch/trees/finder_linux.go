package trees

import (
	"bytes"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Finder looks for processes that left the groups of this Orla's processes. Callers that need it at
// the same time share one look, as when Orla stops: so a hundred trees cost little more than one.
type Finder struct {
	instance string
	groups   func() []int    // those of the trees that live
	turn     sync.Mutex      // held by whoever looks
	environs procfs.Environs // guarded by turn
	mu       sync.Mutex      // guards next; taken after turn
	next     *look           // has not begun; nil when nobody waits
}

// NewFinder returns a Finder for the processes that an instance of Orla has started. groups lists
// their live groups.
func NewFinder(instance string, groups func() []int) *Finder {
	return &Finder{instance: instance, groups: groups}
}

// Outside returns the live processes of a tree outside its group: those with the mark or the tag,
// those in the group's session or among known, and the descendants of all of these. sure is false if
// Orla had no free descriptor to look with.
func (f *Finder) Outside(t Tree, known []Process) (found []Process, sure bool) {
	l := f.join(t.Since)
	if !l.sure {
		return known, false
	}
	ours := map[int]bool{}
	for pid, st := range l.procs {
		if t.Group != 0 && (st.Group == t.Group || st.Session == t.Group) || slices.Contains(l.marks[pid], t.Mark) || t.Tag != 0 && l.tags[pid] == t.Tag {
			ours[pid] = true
		}
	}
	for _, s := range known {
		if l.procs[s.PID].Start == s.Start {
			ours[s.PID] = true
		}
	}
	own, _ := unix.Getsid(0) // it cannot fail for this process
	Complete(ours, l.procs, own)
	for pid := range ours {
		if st := l.procs[pid]; !st.Dead() && (t.Group == 0 || st.Group != t.Group) {
			found = append(found, Process{pid, st.Start})
		}
	}
	return found, true
}

// join returns a look that began after the call.
func (f *Finder) join(since uint64) *look {
	f.mu.Lock()
	if l := f.next; l != nil {
		l.since = min(l.since, since)
		f.mu.Unlock()
		<-l.done
		return l
	}
	l := &look{since: since, done: make(chan struct{})}
	f.next = l
	f.mu.Unlock()

	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	f.next = nil // later callers need a look that begins later
	f.mu.Unlock()
	defer close(l.done)
	l.everywhere(f.instance, f.groups(), &f.environs)
	return l
}

// look is one look at all processes. Reading a process's session costs much less than reading its
// files in /proc, so most processes are ruled out by their session.
type look struct {
	since uint64        // processes that were started before are not looked at
	done  chan struct{} // closed when the fields that follow may be read

	sure  bool                // whether the look was possible
	procs map[int]procfs.Stat // processes that may belong to a tree, and the members of all groups
	marks map[int][]string    // the marks of this instance, for processes that left their group's session
	tags  map[int]uint64      // the tags, for the same processes
	older map[int]bool        // sessions with leaders that were started before since
}

// listings bounds how often one look lists all processes.
const listings = 4

// everywhere looks at all processes, and at those that they start during the look: a process may
// start another one after the listing, and be gone before it is looked at.
func (l *look) everywhere(instance string, groups []int, environs *procfs.Environs) {
	l.procs, l.marks, l.older = map[int]procfs.Stat{}, map[int][]string{}, map[int]bool{}
	l.tags = map[int]uint64{}
	led := make(map[int]bool, len(groups)) // sessions of Orla's processes
	for _, group := range groups {
		led[group] = true
	}
	note := func(pid int, environ []byte) { l.note(pid, environ, instance+".") }
	asked := map[int]bool{os.Getpid(): true}
	for range listings {
		pids, err := procfs.PIDs()
		if err != nil {
			return
		}
		found := false
		for _, pid := range pids {
			if asked[pid] {
				continue
			}
			asked[pid], found = true, true
			environ, err := l.ask(pid, led, environs)
			if procfs.OutOfFiles(err) {
				return
			}
			note(pid, environ)
		}
		if !found {
			break
		}
	}
	l.sure = environs.Wait(note) == nil
}

// ask learns what there is to know of a process, and returns its environment if that
// is of interest.
func (l *look) ask(pid int, led map[int]bool, environs *procfs.Environs) ([]byte, error) {
	session, err := unix.Getsid(pid)
	switch {
	case err != nil:
		return nil, err
	case session == 0, l.older[session]: // 0: a kernel thread, or a process from outside this container
		return nil, nil
	case led[session]:
		group, err := unix.Getpgid(pid)
		if err == nil && group == session { // an ordinary member; its files in /proc say nothing more
			l.procs[pid] = procfs.Stat{Group: group, Session: session}
			return nil, nil
		}
	}
	st, err := procfs.StatOf(pid)
	if err != nil {
		return nil, err
	}
	if st.Start < l.since {
		if pid == session {
			l.older[session] = true
		}
		return nil, nil
	}
	l.procs[pid] = st
	if led[session] {
		return nil, nil
	}
	if tag := TagOf(pid); tag != 0 {
		l.tags[pid] = tag
	}
	return environs.Of(pid)
}

// note keeps the marks of an environment that begin with prefix.
func (l *look) note(pid int, environ []byte, prefix string) {
	for mark := range marksIn(environ) {
		if len(mark) <= longestMark && bytes.HasPrefix(mark, []byte(prefix)) {
			l.marks[pid] = append(l.marks[pid], string(mark))
		}
	}
}
