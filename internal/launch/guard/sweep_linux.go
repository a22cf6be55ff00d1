package guard

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
	"github.com/orla-project/orla/internal/launch/trees"
)

// guardedSession returns the session of the guard's Orla; that of this process if it is not known.
func guardedSession() int {
	session, err := strconv.Atoi(os.Getenv(sessionVariable))
	if err != nil {
		session, _ = unix.Getsid(0) // it cannot fail for this process
	}
	return session
}

// sweepInstance kills every process that carries the instance's mark or tag, every orphan in one of
// the groups, and every process that belongs to one of those. It returns how many it found alive,
// and the groups that have a member: an empty group's id may belong to another one the next time.
func sweepInstance(instance string, groups []int) (found int, live []int) {
	tag := trees.InstanceTag(instance)
	found = killNewest(tag)
	procs := procfs.All()
	// The guard is still Orla's child until Orla is gone. Orla itself may carry a tag: it does if it was
	// killed during a fork.
	delete(procs, os.Getpid())
	// The process that inherits Orla's orphans: the first process, or a subreaper
	// (PR_SET_CHILD_SUBREAPER), as a desktop session has. It has inherited this guard as well.
	inheritor := os.Getppid()
	ours := map[int]bool{}
	var environs procfs.Environs
	bears := func(pid int, environ []byte) {
		if trees.Bears(environ, instance+".") {
			ours[pid] = true
		}
	}
	for pid, st := range procs {
		inGroup := slices.Contains(groups, st.Group)
		if inGroup && !slices.Contains(live, st.Group) {
			live = append(live, st.Group)
		}
		orphan := st.Parent == 1 || st.Parent == inheritor || procs[st.Parent].State == 0
		if st.Dead() {
			continue
		}
		if inGroup && orphan || trees.HasInstance(trees.TagOf(pid), tag) {
			ours[pid] = true
			continue
		}
		environ, _ := environs.Of(pid) // without one it is gone, or another user's
		bears(pid, environ)
	}
	_ = environs.Wait(bears) // what is not found now is by the next sweep
	trees.Complete(ours, procs, guardedSession())
	for pid := range ours {
		trees.Process{PID: pid, Start: procs[pid].Start}.Signal(syscall.SIGKILL)
	}
	return found + len(ours), live
}

const (
	// newestWindow is how many pids before and after the newest one killNewest checks.
	newestWindow = 256
	// newestPasses is how many times one call of killNewest checks them.
	newestPasses = 64
)

// killNewest kills processes with the instance's tag among the newest processes, each as soon as it
// is found, until it finds none. It returns how many it found alive. A process that forks and exits
// again and again is gone before a list of all processes is complete, but its next child is always
// among the newest.
func killNewest(tag uint64) (found int) {
	for range newestPasses {
		newest := newestProcess()
		if newest == 0 {
			return found
		}
		hit := false
		for pid := max(newest-newestWindow, 2); pid <= newest+newestWindow; pid++ {
			if !trees.HasInstance(trees.TagOf(pid), tag) {
				continue
			}
			if st, ok := procfs.Read(pid); ok && !st.Dead() {
				trees.Process{PID: pid, Start: st.Start}.Signal(syscall.SIGKILL)
				hit = true
				found++
			}
		}
		if !hit {
			return found
		}
	}
	return found
}

// newestProcess returns the pid that was given out last; 0 if it is not known.
func newestProcess() int {
	text, _ := os.ReadFile("/proc/loadavg") // without it there is no pid in the text
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-1]) // not a number: 0
	return pid
}
