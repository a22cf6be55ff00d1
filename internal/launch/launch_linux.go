package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a process a session of its own, and so a group. In Orla's
// session it could reach for the terminal that Orla runs in, and stop for good
// when it reads from there: a prompt for a password must fail at once.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended, and leaves it unreaped. It asks
// by the id, which nobody else can get before the reaping, and not by a pidfd:
// before Linux 5.4, and behind some containers' filters, there are none.
func awaitExit(p *os.Process) {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}
