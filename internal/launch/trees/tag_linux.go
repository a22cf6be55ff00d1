package trees

import (
	"bytes"
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Tagger gives processes tags: values of their soft RLIMIT_LOCKS, which Linux has not enforced since
// 2.4.25. Descendants inherit it through fork, exec and setsid, even if the environment is cleared
// or overwritten. So a tag shows which tree a daemon belongs to when its parent is gone and its
// environment has no mark. Only a program that sets this limit on purpose loses its tag.
//
// The upper half of a tag identifies the instance of Orla, the lower half the process that Orla
// started. A fork inherits the limit of the Orla process, so Orla sets its own limit during a fork,
// and forks come one after the other: what a process forks at once has the tag of its own tree.
type Tagger struct {
	instance uint64 // upper half; 0 if processes get no tags
	last     atomic.Uint32
}

// Fork is a fork that has begun. A nil Fork is one that gives no tag.
type Fork struct {
	tag    uint64
	own    uint64 // the limit of this process without a tag
	late   *time.Timer
	passed atomic.Bool // others may fork
}

// limit is the limit of this process, which its forks inherit. All Taggers share it.
var limit = struct {
	fork chan struct{} // has a value while the limit belongs to a fork
	own  unix.Rlimit   // written by the owner of fork
}{fork: make(chan struct{}, 1)}

// patience is how long a fork keeps others waiting. The kernel copies the limit at the beginning of a
// fork, and what takes longer is an exec, which a lease on the program can stop for 45 s.
const patience = 250 * time.Millisecond

// NewTagger returns a Tagger for an instance of Orla. nested says that Orla runs in a tool of
// another Orla; then all processes keep the tag of that tool, so that the outer Orla finds them. An
// Orla that has a tag itself is nested, whatever its environment says. last is what Last returned in the program
// before this one; 0 if there was none.
func NewTagger(instance string, nested bool, last uint32) *Tagger {
	t := &Tagger{}
	t.last.Store(last)
	if nested || !ownLimit() {
		return t
	}
	t.instance = InstanceTag(instance)
	return t
}

// ownLimit finds out what the limit of this process is, and reports whether forks can have tags.
func ownLimit() bool {
	limit.fork <- struct{}{}
	defer func() { <-limit.fork }()
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &limit.own) != nil {
		return false
	}
	return limit.own.Max == unix.RLIM_INFINITY && !isTag(limit.own.Cur)
}

// InstanceTag returns the upper half of an instance's tags. It is never 0, and tags are below
// RLIM_INFINITY.
func InstanceTag(instance string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(instance)) // never fails
	return uint64(h.Sum32()>>1|1) << 32
}

// isTag reports whether a limit is a tag of any instance: the upper half of a tag is never 0.
func isTag(limit uint64) bool { return limit != unix.RLIM_INFINITY && limit>>32 != 0 }

// HasInstance reports whether a tag belongs to an instance.
func HasInstance(tag, instance uint64) bool { return instance != 0 && tag>>32 == instance>>32 }

// Last returns the lower half of the last tag that was given.
func (t *Tagger) Last() uint32 { return t.last.Load() }

func (t *Tagger) next() uint64 { return t.instance | uint64(t.last.Add(1)) }

// Begin is called before each fork, and waits for the one before it. End must follow.
func (t *Tagger) Begin() *Fork {
	if t.instance == 0 {
		return nil
	}
	limit.fork <- struct{}{} // for patience at most
	f := &Fork{tag: t.next(), own: limit.own.Cur}
	_ = setTag(0, f.tag) // cannot fail, since the hard limit is infinite
	f.late = time.AfterFunc(patience, func() { f.pass() })
	return f
}

// pass lets others fork. It reports false if they could already.
func (f *Fork) pass() bool {
	if !f.passed.CompareAndSwap(false, true) {
		return false
	}
	_ = setTag(0, f.own) // see Begin
	<-limit.fork
	return true
}

// End returns the tag of the process that was forked; 0 if it has none. pid is 0
// if there is no such process.
func (t *Tagger) End(f *Fork, pid int, untagged bool) uint64 {
	if f == nil {
		return 0
	}
	f.late.Stop()
	sure := f.pass()
	switch {
	case pid == 0:
		return 0
	case untagged:
		_ = setTag(pid, f.own) // it may have already ended
		return 0
	case !sure && TagOf(pid) != f.tag: // it was forked when others could
		f.tag = t.next()
		_ = setTag(pid, f.tag) // it may have already ended
	}
	return f.tag
}

// setTag sets the limit of a process; 0 is this one. The hard limit stays infinite, see ownLimit.
func setTag(pid int, tag uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: tag, Max: unix.RLIM_INFINITY}, nil)
}

// TagOf returns the tag of a process. Reading it from another user's process with prlimit requires
// CAP_SYS_RESOURCE, which root in a container does not have. Root can still kill such a process, so
// TagOf reads its tag from /proc then.
func TagOf(pid int) uint64 {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); err == unix.EPERM && unix.Geteuid() == 0 {
		limit.Cur = listedLocks(pid)
	} else if err != nil {
		return 0
	}
	if !isTag(limit.Cur) {
		return 0
	}
	return limit.Cur
}

// listedLocks returns the soft RLIMIT_LOCKS of a process from /proc/PID/limits; 0 if it is not
// known.
func listedLocks(pid int) uint64 {
	var buf [2048]byte // 16 lines of 80
	text, err := procfs.File(pid, "limits", buf[:])
	if err != nil {
		return 0
	}
	_, line, _ := bytes.Cut(text, []byte("Max file locks"))
	fields := bytes.Fields(line[:min(len(line), 80)])
	if len(fields) == 0 {
		return 0
	}
	limit, _ := strconv.ParseUint(string(fields[0]), 10, 64) // not a number: unlimited, 0
	return limit
}
