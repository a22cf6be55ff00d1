//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guard

import "syscall"

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
