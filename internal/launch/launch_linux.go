package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a process its own session, and so its own group. In Orla's session it could open
// Orla's terminal, and would be stopped forever when it reads from it. A prompt for a password has
// to fail at once instead. *pidfd is set to a descriptor of the process, which awaitExit closes; to
// none if pidfds are not available.
func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	*pidfd = none
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd}
}

// leadsNamespace reports whether a process will be the first one of a pid namespace. The kernel
// kills all others in a namespace when its first process ends, and lets that be reaped after them
// (pid_namespaces(7)).
func leadsNamespace(attr *syscall.SysProcAttr) bool { return attr.Cloneflags&unix.CLONE_NEWPID != 0 }

// awaitExit returns when the process has ended, and does not reap it, or when it was given away. It waits until the pidfd is
// readable, by the runtime's poller, without blocking a thread. Before Linux 5.4, and behind the
// seccomp filters of some containers, there are no pidfds; then it blocks a thread.
func (p *LocalProcess) awaitExit() {
	if p.pidfd < 0 || !p.pollExit() {
		hasEnded(p.pid, 0)
	}
}

// pollExit waits for the end by polling a pidfd, which it closes. It reports false if that is not
// possible.
func (p *LocalProcess) pollExit() bool {
	if neverBlock(p.pidfd) != nil {
		_ = unix.Close(p.pidfd) // nothing was done with it
		return false
	}
	f := os.NewFile(uintptr(p.pidfd), "pidfd")
	defer func() { _ = f.Close() }() // nothing can be written to it
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	p.mu.Lock()
	p.watch = f
	p.mu.Unlock()
	ended := false
	err = raw.Read(func(uintptr) bool {
		ended = hasEnded(p.pid, unix.WNOHANG)
		return ended
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = nil
	return p.given || err == nil && ended
}

// hasEnded reports whether a process has ended and is not reaped. Without WNOHANG it waits for that. It may use the
// pid, which no other process can get before that is reaped.
func hasEnded(pid, flags int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|flags, nil)
		if err != unix.EINTR {
			return err != nil || info.Signo != 0 // an error means that it is not a child any more
		}
	}
}
