package trees

import (
	"bytes"
	"hash/fnv"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Tagger gives processes tags: values of their soft RLIMIT_LOCKS. Linux has not
// enforced this limit since 2.4.25. Descendants inherit it across fork, exec and
// setsid, and neither a cleared environment nor an overwritten one changes it. So
// a tag tells whose a daemon is when its parent is gone and the mark in its
// environment is too. Only a program that sets this limit on purpose loses its tag.
//
// The upper half of a tag names the instance of Orla, the lower half the process
// that Orla started. Forks inherit the limit of Orla's whole process, so Orla sets
// it for the time of a fork. Processes that are forked at the same time inherit
// the same tag, which then stands for none of them; each gets one of its own right
// after. What such a process forks before that is found by its other traces, or by
// the guard, which compares only the instance.
type Tagger struct {
	instance uint64 // upper half; 0 where processes get no tags

	mu     sync.Mutex // guards the fields that follow
	own    unix.Rlimit
	last   uint32
	forks  int    // that have begun and not ended
	tag    uint64 // that these inherit
	shared bool   // whether more than one process inherits it
}

// NewTagger returns a Tagger for an instance of Orla. If Orla runs in a tool of
// another Orla, nested, all keep the tag of that tool, so that the outer one
// finds them. An Orla that has a tag itself runs in such a tool, whatever its
// environment says.
func NewTagger(instance string, nested bool) *Tagger {
	t := &Tagger{}
	if nested || unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &t.own) != nil || t.own.Max != unix.RLIM_INFINITY || isTag(t.own.Cur) {
		return t
	}
	t.instance = InstanceTag(instance)
	return t
}

// InstanceTag returns the upper half of an instance's tags. It is never 0, and
// below RLIM_INFINITY.
func InstanceTag(instance string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(instance)) // never fails
	return uint64(h.Sum32()>>1|1) << 32
}

// isTag reports whether a limit is a tag of some instance's: InstanceTag gives each an
// upper half.
func isTag(limit uint64) bool { return limit != unix.RLIM_INFINITY && limit>>32 != 0 }

// HasInstance reports whether a tag is one of an instance's.
func HasInstance(tag, instance uint64) bool { return instance != 0 && tag>>32 == instance>>32 }

func (t *Tagger) next() uint64 {
	t.last++
	return t.instance | uint64(t.last)
}

// Begin comes before each fork, End after it.
func (t *Tagger) Begin() {
	if t.instance == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forks++; t.forks > 1 {
		t.shared = true
		return
	}
	t.tag, t.shared = t.next(), false
	_ = setTag(0, t.tag, t.own) // possible, since the hard limit is infinite
}

// End returns the tag of the process that was forked; 0 if it has none. pid is 0
// if there is no such process.
func (t *Tagger) End(pid int, untagged bool) uint64 {
	if t.instance == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forks--; t.forks == 0 {
		_ = setTag(0, t.own.Cur, t.own) // as in Begin
	}
	tag := t.tag
	switch {
	case pid == 0:
		return 0
	case untagged:
		_ = setTag(pid, t.own.Cur, t.own) // it may have ended already
		return 0
	case t.shared:
		tag = t.next()
		_ = setTag(pid, tag, t.own) // the same
	}
	return tag
}

func setTag(pid int, tag uint64, own unix.Rlimit) error {
	return unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: tag, Max: own.Max}, nil)
}

// TagOf returns the tag of a process. That of another user's prlimit says to nobody
// without CAP_SYS_RESOURCE, which root of a container has not; root can end such a
// process all the same, and finds the tag in /proc.
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

// listedLocks is the soft RLIMIT_LOCKS of a process in /proc/PID/limits; 0 where it is
// not known, or there is none.
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
	limit, _ := strconv.ParseUint(string(fields[0]), 10, 64) // it may be unlimited
	return limit
}
