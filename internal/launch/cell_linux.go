package launch

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
	"github.com/orla-project/orla/internal/launch/trees"
)

// enterCgroup makes a process start in a cgroup, so that everything it forks is in it too.
func enterCgroup(attr *syscall.SysProcAttr, fd int) { attr.UseCgroupFD, attr.CgroupFD = true, fd }

func stayOutside(attr *syscall.SysProcAttr) { attr.UseCgroupFD, attr.CgroupFD = false, 0 }

// cannotEnter reports whether err may mean that clone3 is missing, does not support cgroups or is
// forbidden. Some of these errors can have other causes in the program; the next attempt shows that.
func cannotEnter(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.E2BIG, unix.EBADF, unix.EOPNOTSUPP, unix.ENODEV,
	}, func(target error) bool { return errors.Is(err, target) })
}

// boundMemory limits the private writable memory of a process (RLIMIT_DATA), which its children
// inherit. The address space is not a useful limit: Go and V8 reserve gigabytes that they never use.
func boundMemory(pid int, bytes int64) error {
	limit := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has already ended
	}
	return err
}

// fromCell adds to strays the processes in the process's cgroup, including those that the finder
// cannot see.
func (p *LocalProcess) fromCell(strays []trees.Process) []trees.Process {
	for _, pid := range p.cell.Pids() {
		st, ok := procfs.Read(pid)
		inGroup := !p.empty && st.Group == p.pid
		if !ok || st.Dead() || inGroup || slices.ContainsFunc(strays, func(s trees.Process) bool { return s.PID == pid }) {
			continue
		}
		strays = append(strays, trees.Process{PID: pid, Start: st.Start})
	}
	return strays
}

// usageOfCell returns the usage of the tree in a leader's cgroup. It reports false if there is no
// cgroup or memory is not counted there.
func (l *Local) usageOfCell(leader int) (Usage, bool) {
	cell := l.cells.of(leader)
	if cell == nil {
		return Usage{}, false
	}
	whole := cell.Usage()
	u := Usage{RSS: whole.Memory, CPU: time.Duration(whole.CPU) * time.Microsecond, Processes: len(whole.Processes)}
	if u.RSS == 0 { // memory is not counted there
		for _, pid := range whole.Processes {
			rss, _, _ := procfs.Usage(pid)
			u.RSS += rss
		}
	}
	return u, u.Processes > 0
}
