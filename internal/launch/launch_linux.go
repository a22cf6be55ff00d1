package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a process a session of its own, and so a group. In Orla's
// session it could reach for the terminal that Orla runs in, and stop for good
// when it reads from there: a prompt for a password must fail at once.
// pidfd receives a descriptor of the process, which awaitExit closes; none where
// there are none.
func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	*pidfd = none
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd}
}

// leadsNamespace reports whether a process is to be the first of a pid
// namespace. The kernel kills what is in one when its first process ends, and
// lets that be reaped when all the rest is (pid_namespaces(7)).
func leadsNamespace(attr *syscall.SysProcAttr) bool { return attr.Cloneflags&unix.CLONE_NEWPID != 0 }

// awaitExit returns when the process has ended, and leaves it unreaped. A pidfd
// becomes readable then, and the runtime polls it with all else, so that the
// wait holds no thread. Before Linux 5.4, and behind some containers' filters,
// there are none; a thread waits then.
func awaitExit(pid, pidfd int) {
	if pidfd >= 0 && pollExit(pid, pidfd) {
		return
	}
	for hasEnded(pid, 0) == unknown {
	}
}

// pollExit waits for the end by polling a pidfd, which it closes. It reports
// false when that is not possible.
func pollExit(pid, pidfd int) bool {
	if unix.SetNonblock(pidfd, true) != nil {
		_ = unix.Close(pidfd) // nothing was done with it
		return false
	}
	f := os.NewFile(uintptr(pidfd), "pidfd")
	defer func() { _ = f.Close() }() // nothing can be written to it
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Read(func(uintptr) bool {
		ended = hasEnded(pid, unix.WNOHANG) == yes
		return ended
	})
	return err == nil && ended
}

// answer is what the kernel says of a process.
type answer int

const (
	unknown answer = iota // asked at a bad moment
	yes
	no
)

// hasEnded asks whether a process has ended and is not reaped. It asks by the
// id, which nobody else can get before the reaping.
func hasEnded(pid, flags int) answer {
	var info unix.Siginfo
	switch err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|flags, nil); {
	case err == unix.EINTR:
		return unknown
	case err != nil, info.Signo != 0: // an error means that it is no child any more
		return yes
	}
	return no
}
