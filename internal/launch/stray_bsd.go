//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "syscall"

// stray is a process that left its group. There is no cheap way to find those
// here, so none is ever made.
type stray struct{}

func (stray) signal(syscall.Signal) {}

func (stray) alive() bool { return false }

func findStrays(int, string) []stray { return nil }

// sweepInstance kills the groups that the table names.
func sweepInstance(_ string, groups []int) (found int) {
	for _, g := range groups {
		if syscall.Kill(-g, syscall.SIGKILL) == nil {
			found++
		}
	}
	return found
}

// groupAlive reports whether a group whose leader is reaped has a member left.
func groupAlive(pgid int) bool { return syscall.Kill(-pgid, 0) == nil }
