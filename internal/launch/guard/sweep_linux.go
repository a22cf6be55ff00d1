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

// guardedSession returns the session of the Orla that is guarded; that of this process
// where nobody said it.
func guardedSession() int {
	session, err := strconv.Atoi(os.Getenv(sessionVariable))
	if err != nil {
		session, _ = unix.Getsid(0) // it has no error
	}
	return session
}

// sweepInstance kills every process that carries the instance's mark or tag, is an
// orphan in one of the groups, or belongs to such a one. It returns how many
// it found alive, and the groups that have a member: the id of one without may
// be a stranger's the next time.
func sweepInstance(instance string, groups []int) (found int, live []int) {
	tag := trees.InstanceTag(instance)
	found = killNewest(tag)
	procs := procfs.All()
	// This guard is Orla's child for as long as Orla takes to go, and Orla may bear a
	// tag then: one that is killed during a fork does.
	delete(procs, os.Getpid())
	// Whoever inherits what Orla leaves: the first process, or one that asked
	// for it (PR_SET_CHILD_SUBREAPER), as a desktop session's does. It has
	// inherited this guard as well.
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
	// newestWindow is how far from the newest process killNewest looks, in both directions.
	newestWindow = 256
	// newestPasses bounds how often one call of killNewest looks.
	newestPasses = 64
)

// killNewest kills what bears the instance's tag among the newest processes, each as
// soon as it is found, until it finds none. It returns how many it found alive. A
// process that forks and ends at once, again and again, is gone before a list of all
// processes is complete, but its next one is always among the newest.
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

// newestProcess returns the id that was given out last; 0 where that is not known.
func newestProcess() int {
	text, _ := os.ReadFile("/proc/loadavg") // without it there is no id in it
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-1]) // the same
	return pid
}
