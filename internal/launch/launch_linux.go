package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended, and leaves it unreaped where
// the kernel can (pidfd, Linux 5.4).
func awaitExit(p *os.Process) {
	_ = p.WithHandle(func(pidfd uintptr) { // without a pidfd, Wait does the waiting
		for {
			err := unix.Waitid(unix.P_PIDFD, int(pidfd), nil, unix.WEXITED|unix.WNOWAIT, nil)
			if err != unix.EINTR {
				return
			}
		}
	})
}
