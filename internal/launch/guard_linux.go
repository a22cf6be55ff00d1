package launch

import (
	"os"
	"slices"
	"syscall"
	"unsafe"

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

// nameThisProcess sets the name that ps and pgrep show. It is not "orla", so
// that `kill -HUP $(pgrep orla)` finds the one that is meant.
func nameThisProcess(name string) {
	b := append([]byte(name), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0) // cosmetic
}

// sweepInstance kills every process that carries the instance's mark, is in
// one of the groups, or descends from such a one, and returns how many it
// found alive. A group counts only by a member that carries the mark or whose
// parent is gone: its id may have gone to a stranger since.
func sweepInstance(instance string, groups []int) (found int) {
	mark := instanceVar + "=" + instance
	procs := readProcesses()
	ours := map[int]bool{}
	for pid, st := range procs {
		if st.state == 'Z' || pid == os.Getpid() {
			continue
		}
		orphan := st.parent == 1 || procs[st.parent].state == 0
		if environHas(pid, mark) || orphan && slices.Contains(groups, st.group) {
			ours[pid] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, st := range procs {
			if !ours[pid] && ours[st.parent] && st.state != 'Z' {
				ours[pid], grew = true, true
			}
		}
	}
	for pid := range ours {
		stray{pid, procs[pid].start}.signal(syscall.SIGKILL)
	}
	return len(ours)
}
