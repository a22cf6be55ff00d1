package launch

import (
	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Usage returns the usage of trees that Start returned, by the pids of their leaders. It omits trees
// that are gone. If a tree has its own cgroup, the kernel's counters are used. For all others, Usage
// reads the processes of this machine once, and does not count descendants that have made their own
// session.
func (l *Local) Usage(leaders []int) map[int]Usage {
	trees := make(map[int]Usage, len(leaders))
	asked := make(map[int]bool, len(leaders)) // each leads a session
	for _, leader := range leaders {
		if u, ok := l.usageOfCell(leader); ok {
			trees[leader] = u
			continue
		}
		asked[leader] = true
	}
	if len(asked) == 0 {
		return trees
	}
	pids, _ := procfs.PIDs() // on an error, the pids that were listed are used
	for _, pid := range pids {
		session, err := unix.Getsid(pid)
		if err != nil || !asked[session] {
			continue
		}
		if rss, cpu, ok := procfs.Usage(pid); ok {
			all := trees[session]
			all.RSS += rss
			all.CPU += cpu
			all.Processes++
			trees[session] = all
		}
	}
	return trees
}
