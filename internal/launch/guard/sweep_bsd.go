//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guard

import "syscall"

// sweepInstance kills the groups in the table, and returns those that had a member. An empty group's
// id may belong to another one the next time.
func sweepInstance(_ string, groups []int) (found int, live []int) {
	for _, g := range groups {
		if syscall.Kill(-g, syscall.SIGKILL) == nil {
			live = append(live, g)
		}
	}
	return len(live), live
}
