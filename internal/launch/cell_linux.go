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

// enterCgroup has a process begin its life in a cgroup: what it forks first of
// all is in it too.
func enterCgroup(attr *syscall.SysProcAttr, fd int) { attr.UseCgroupFD, attr.CgroupFD = true, fd }

func stayOutside(attr *syscall.SysProcAttr) { attr.UseCgroupFD, attr.CgroupFD = false, 0 }

// cannotEnter reports whether an error may mean that there is no clone3, or
// that it does not know cgroups, or may not be used. Some of these may come of
// the program as well; the next try tells.
func cannotEnter(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.E2BIG, unix.EBADF, unix.EOPNOTSUPP, unix.ENODEV,
	}, func(target error) bool { return errors.Is(err, target) })
}

// boundMemory bounds what a process may write to of its own memory, which
// those that it starts inherit. The address space is no measure: Go and V8
// reserve gigabytes that they never use.
func boundMemory(pid int, bytes int64) error {
	limit := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended already
	}
	return err
}

// fromCell adds to strays what is in the process's cgroup, however it came to
// hide from the finder.
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

// usageOfCell returns what the tree in a leader's cgroup takes, if it has one.
func (l *Local) usageOfCell(leader int) (Usage, bool) {
	cell := l.cells.of(leader)
	if cell == nil {
		return Usage{}, false
	}
	whole := cell.Usage()
	u := Usage{RSS: whole.Memory, CPU: time.Duration(whole.CPU) * time.Microsecond, Processes: len(whole.Processes)}
	if u.RSS == 0 { // it is not counted there
		for _, pid := range whole.Processes {
			rss, _, _ := procfs.Usage(pid)
			u.RSS += rss
		}
	}
	return u, u.Processes > 0
}
