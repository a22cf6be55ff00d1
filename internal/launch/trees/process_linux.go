package trees

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// Process is a process that belongs to a tree but left its group. The start time
// tells it from a later process of the same id.
type Process struct {
	PID   int
	Start uint64
}

// Signal sends sig to the process itself, never to another one that got its id.
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
		// There are no pidfds here, or not for this one. The start time was
		// right a moment ago, which is all that can be known.
		_ = syscall.Kill(p.PID, sig) // it may have ended just now
	}
}

// Alive reports whether the process is there and is no zombie. While that
// cannot be known it is taken to be.
func (p Process) Alive() bool {
	st, err := procfs.StatOf(p.PID)
	return procfs.OutOfFiles(err) || err == nil && st.Start == p.Start && !st.Dead()
}

// StartOf returns when a process was started, or 0 where that is not known.
func StartOf(pid int) uint64 {
	st, _ := procfs.Read(pid)
	return st.Start
}

// GroupAlive reports whether a group whose leader is reaped has a member left.
// A zombie counts for nothing: whoever inherited it may take its time. member
// is the one that was found the last time, and is asked first.
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
	return err != nil // it is not known, so look again
}

// Complete adds to pids what descends from them and what shares a session with
// one of them: each process is started with a session of its own, so every
// session below it is ours whole. Not so the session that Orla itself is in, which a
// process has too in the moment between its fork and its own session, nor one whose
// leader lives and is not ours. The session 0 stands for all that began outside this
// container.
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
