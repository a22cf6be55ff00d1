package launch

import (
	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Usage returns what the trees of processes take that Start returned, by the
// ids of their leaders. One that is gone is left out. Of a tree with a cgroup of
// its own the kernel has the numbers. All others cost one look at the processes
// of this machine, and what has made a session of its own is not counted.
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
	pids, _ := procfs.PIDs() // what is listed is better than nothing
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
