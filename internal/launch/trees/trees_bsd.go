//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package trees

import "syscall"

// Process is a process that left its group. These systems have no cheap way to find one, so none is
// ever made.
type Process struct{}

// Signal does nothing.
func (Process) Signal(syscall.Signal) {}

// Alive reports false.
func (Process) Alive() bool { return false }

// Finder finds nothing.
type Finder struct{}

// NewFinder returns a Finder that finds nothing.
func NewFinder(string, func() []int) *Finder { return nil }

// Outside finds nothing.
func (*Finder) Outside(Tree, []Process) (found []Process, sure bool) { return nil, true }

// StartOf returns 0: Finder does not need it here.
func StartOf(int) uint64 { return 0 }

// GroupAlive reports whether a group whose leader is reaped has a member left.
func GroupAlive(pgid int, _ *Process) bool { return syscall.Kill(-pgid, 0) == nil }
