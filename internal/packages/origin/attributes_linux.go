package origin

import "syscall"

// attributes makes git the leader of a group, which ends with Orla.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
