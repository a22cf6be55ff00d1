//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a process a session of its own, and so a group. In Orla's
// session it could reach for the terminal that Orla runs in, and stop for good
// when it reads from there: a prompt for a password must fail at once.
func sysProcAttr(*int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// leadsNamespace reports false: there are no pid namespaces.
func leadsNamespace(*syscall.SysProcAttr) bool { return false }

// awaitExit returns when the process has ended, and leaves it unreaped.
func awaitExit(pid, _ int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return // the reaping does the waiting
	}
	defer func() { _ = unix.Close(kq) }() // nothing was written to it
	var watch unix.Kevent_t
	unix.SetKevent(&watch, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	watch.Fflags = unix.NOTE_EXIT
	events := make([]unix.Kevent_t, 1)
	for {
		// No such process means that it is a zombie already.
		n, err := unix.Kevent(kq, []unix.Kevent_t{watch}, events, nil)
		if err != unix.EINTR || n > 0 {
			return
		}
	}
}
