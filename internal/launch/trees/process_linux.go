package trees

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Process is a process that belongs to a tree but left its group. The start time distinguishes it
// from a later process with the same pid.
type Process struct {
	PID   int
	Start uint64
}

// Signal sends sig to the process, never to another one that got its pid.
func (p Process) Signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == unix.ESRCH {
		return // gone
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if st, ok := procfs.Read(p.PID); !ok || st.Start != p.Start || st.Dead() {
		return
	}
	if err != nil || unix.PidfdSendSignal(fd, sig, nil, 0) != nil {
		// This system or this process has no pidfd. The start time was checked a moment ago, which is the
		// best that can be done.
		_ = syscall.Kill(p.PID, sig) // it may have just ended
	}
}

// Alive reports whether the process exists and is not a zombie. It reports true if that cannot be
// found out.
func (p Process) Alive() bool {
	st, err := procfs.StatOf(p.PID)
	return procfs.OutOfFiles(err) || err == nil && st.Start == p.Start && !st.Dead()
}

// StartOf returns when a process was started, or 0 if that is not known.
func StartOf(pid int) uint64 {
	st, _ := procfs.Read(pid)
	return st.Start
}

// GroupAlive reports whether a group with a reaped leader has a live member. Zombies do not count:
// their new parent may not reap them soon. *member is the one that was found the last time, and is
// checked first.
func GroupAlive(pgid int, member *Process) bool {
	if member.PID != 0 && member.Alive() {
		if group, err := unix.Getpgid(member.PID); err == nil && group == pgid {
			return true
		}
	}
	if syscall.Kill(-pgid, 0) != nil {
		return false
	}
	pids, err := procfs.PIDs()
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err != nil || group != pgid {
			continue
		}
		st, err := procfs.StatOf(pid)
		if procfs.OutOfFiles(err) || err == nil && st.Group == pgid && !st.Dead() {
			*member = Process{pid, st.Start}
			return true
		}
	}
	return err != nil // not known, so check again
}

// Complete adds to pids the descendants of these processes and the processes in the same sessions.
// Orla starts each process in a new session, so every session below it consists of Orla's processes.
// There are three exceptions: the session of Orla itself, in which a process is for a moment after
// its fork; a session whose leader is alive and not among pids; and session 0, which stands for
// everything outside this container.
func Complete(pids map[int]bool, procs map[int]procfs.Stat, orla int) {
	sessions := map[int]bool{}
	add := func(pid int) {
		session := procs[pid].Session
		leader, there := procs[session]
		if session != 0 && session != orla && (!there || leader.Dead() || pids[session]) {
			sessions[session] = true
		}
	}
	for pid := range pids {
		add(pid)
	}
	for grew := true; grew; {
		grew = false
		for pid, st := range procs {
			if !pids[pid] && !st.Dead() && (pids[st.Parent] || sessions[st.Session]) {
				pids[pid], grew = true, true
				add(pid)
			}
		}
	}
}
