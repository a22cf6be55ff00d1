package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedFile returns memory that can be handed to another process.
func sharedFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("orla-groups", unix.MFD_CLOEXEC)
	if err != nil {
		return namelessFile() // a filter forbids it
	}
	return os.NewFile(uintptr(fd), "orla-groups"), nil
}

// guardProcAttr gives the guard a session of its own: Ctrl-C and a kill of Orla's
// group must not reach it, or nobody would be left to clean up. A guard that was
// stopped continues when Orla ends.
func guardProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// sessionVariable tells a guard which session its Orla is in.
const sessionVariable = "ORLA_SESSION"

func guardEnviron() []string {
	own, _ := unix.Getsid(0) // it has no error
	return []string{sessionVariable + "=" + strconv.Itoa(own)}
}

// guardedSession returns the session of the Orla that is guarded; that of this process
// where nobody said it.
func guardedSession() int {
	session, err := strconv.Atoi(os.Getenv(sessionVariable))
	if err != nil {
		session, _ = unix.Getsid(0) // it has no error
	}
	return session
}

// Program returns a path by which this process can execute its own program. It
// works also after the file was replaced or removed: for the kernel it is the
// program that runs, not a name.
func Program() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// nameThisProcess sets the name that ps and pgrep show. It is not "orla", so
// that `kill -HUP $(pgrep orla)` finds the one that is meant.
func nameThisProcess(name string) {
	// A prctl would name the thread that happens to run this.
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // cosmetic
}

// sweepInstance kills every process that carries the instance's mark or tag, is an
// orphan in one of the groups, or belongs to such a one. It returns how many
// it found alive, and the groups that have a member: the id of one without may
// be a stranger's the next time.
func sweepInstance(instance string, groups []int) (found int, live []int) {
	tag := instanceTag(instance)
	found = killNewest(tag)
	procs := readProcesses()
	// This guard is Orla's child for as long as Orla takes to go, and Orla may bear a
	// tag then: one that is killed during a fork does.
	delete(procs, os.Getpid())
	// Whoever inherits what Orla leaves: the first process, or one that asked
	// for it (PR_SET_CHILD_SUBREAPER), as a desktop session's does. It has
	// inherited this guard as well.
	heir := os.Getppid()
	ours := map[int]bool{}
	for pid, st := range procs {
		inGroup := slices.Contains(groups, st.group)
		if inGroup && !slices.Contains(live, st.group) {
			live = append(live, st.group)
		}
		orphan := st.parent == 1 || st.parent == heir || procs[st.parent].state == 0
		if st.dead() {
			continue
		}
		environ, _ := environOf(pid) // without one it is gone, or another user's
		if inGroup && orphan || bears(environ, instance+".") || hasInstance(tagOf(pid), tag) {
			ours[pid] = true
		}
	}
	complete(ours, procs, guardedSession())
	for pid := range ours {
		stray{pid, procs[pid].start}.signal(syscall.SIGKILL)
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
			if !hasInstance(tagOf(pid), tag) {
				continue
			}
			if st, ok := readStat(pid); ok && !st.dead() {
				stray{pid, st.start}.signal(syscall.SIGKILL)
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
