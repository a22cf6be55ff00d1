//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "syscall"

// stray is a process that left its group. There is no cheap way to find those
// here, so none is ever made.
type stray struct{}

func (stray) signal(syscall.Signal) {}

func (stray) alive() bool { return false }

type census struct{}

func newCensus(string, *groupTable) *census { return nil }

func (*census) strays(tree, []stray) (found []stray, sure bool) { return nil, true }

// startOf is not needed where nothing is looked for.
func startOf(int) uint64 { return 0 }

// sweepInstance kills the groups that the table names, and returns those that
// had a member. The id of one without may be a stranger's the next time.
func sweepInstance(_ string, groups []int) (found int, live []int) {
	for _, g := range groups {
		if syscall.Kill(-g, syscall.SIGKILL) == nil {
			live = append(live, g)
		}
	}
	return len(live), live
}

// groupAlive reports whether a group whose leader is reaped has a member left.
func groupAlive(pgid int, _ *stray) bool { return syscall.Kill(-pgid, 0) == nil }
