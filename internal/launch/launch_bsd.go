//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a process its own session, and so its own group. In Orla's session it could open
// Orla's terminal, and would be stopped forever when it reads from it. A prompt for a password has
// to fail at once instead.
func sysProcAttr(*int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// leadsNamespace reports false: there are no pid namespaces.
func leadsNamespace(*syscall.SysProcAttr) bool { return false }

// awaitExit returns when the process has ended, and leaves it unreaped.
func (p *LocalProcess) awaitExit() {
	pid := p.pid
	kq, err := unix.Kqueue()
	if err != nil {
		return // wait4 waits instead
	}
	defer func() { _ = unix.Close(kq) }() // nothing was written to it
	var watch unix.Kevent_t
	unix.SetKevent(&watch, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	watch.Fflags = unix.NOTE_EXIT
	events := make([]unix.Kevent_t, 1)
	for {
		// ESRCH means that it is already a zombie.
		n, err := unix.Kevent(kq, []unix.Kevent_t{watch}, events, nil)
		if err != unix.EINTR || n > 0 {
			return
		}
	}
}
