package launch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// stray is a process that belongs to a tree but left its group. The start time
// tells it from a later process of the same id.
type stray struct {
	pid   int
	start uint64
}

// signal sends sig to the process itself, never to another one that got its id.
func (s stray) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err == unix.ESRCH {
		return // gone
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if st, ok := readStat(s.pid); !ok || st.start != s.start || st.dead() {
		return
	}
	if err != nil || unix.PidfdSendSignal(fd, sig, nil, 0) != nil {
		// There are no pidfds here, or not for this one. The start time was
		// right a moment ago, which is all that can be known.
		_ = syscall.Kill(s.pid, sig) // it may have ended just now
	}
}

// alive reports whether the process is there and is no zombie. While that
// cannot be known it is taken to be.
func (s stray) alive() bool {
	st, err := statOf(s.pid)
	return outOfFiles(err) || err == nil && st.start == s.start && !st.dead()
}

// startOf returns when a process was started, or 0 where that is not known.
func startOf(pid int) uint64 {
	st, _ := readStat(pid)
	return st.start
}

// groupAlive reports whether a group whose leader is reaped has a member left.
// A zombie counts for nothing: whoever inherited it may take its time. member
// is the one that was found the last time, and is asked first.
func groupAlive(pgid int, member *stray) bool {
	if member.pid != 0 && member.alive() {
		if group, err := unix.Getpgid(member.pid); err == nil && group == pgid {
			return true
		}
	}
	if syscall.Kill(-pgid, 0) != nil {
		return false
	}
	pids, err := processIDs()
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err != nil || group != pgid {
			continue
		}
		st, err := statOf(pid)
		if outOfFiles(err) || err == nil && st.group == pgid && !st.dead() {
			*member = stray{pid, st.start}
			return true
		}
	}
	return err != nil // it is not known, so look again
}

// complete adds to pids what descends from them and what shares a session with
// one of them: each process is started with a session of its own, so every
// session below it is ours whole. Not so the session that Orla itself is in, which a
// process has too in the moment between its fork and its own session, nor one whose
// leader lives and is not ours. The session 0 stands for all that began outside this
// container.
func complete(pids map[int]bool, procs map[int]procStat, orla int) {
	sessions := map[int]bool{}
	add := func(pid int) {
		session := procs[pid].session
		leader, there := procs[session]
		if session != 0 && session != orla && (!there || leader.dead() || pids[session]) {
			sessions[session] = true
		}
	}
	for pid := range pids {
		add(pid)
	}
	for grew := true; grew; {
		grew = false
		for pid, st := range procs {
			if !pids[pid] && !st.dead() && (pids[st.parent] || sessions[st.session]) {
				pids[pid], grew = true, true
				add(pid)
			}
		}
	}
}
