//go:build !linux

package origin

import "syscall"

// attributes makes git the leader of a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
