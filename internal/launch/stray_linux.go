package launch

import (
	"bytes"
	"os"
	"strconv"
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
	if !s.alive() {
		return
	}
	if err != nil || unix.PidfdSendSignal(fd, sig, nil, 0) != nil {
		// There are no pidfds here, or not for this one. The start time was
		// right a moment ago, which is all that can be known.
		_ = syscall.Kill(s.pid, sig) // it may have ended just now
	}
}

// alive reports whether the process is there and is no zombie.
func (s stray) alive() bool {
	st, ok := readStat(s.pid)
	return ok && st.start == s.start && st.state != 'Z'
}

// groupAlive reports whether a group whose leader is reaped has a member left.
// A zombie counts for nothing: whoever inherited it may take its time.
func groupAlive(pgid int) bool {
	if syscall.Kill(-pgid, 0) != nil {
		return false
	}
	for _, st := range readProcesses() {
		if st.group == pgid && st.state != 'Z' {
			return true
		}
	}
	return false
}

// findStrays returns every process outside a group that bears the mark, and what
// belongs to the group, to such a process or to one of known. A group of 0 is
// none.
func findStrays(group int, mark string, known []stray) []stray {
	procs := readProcesses()
	ours := map[int]bool{}
	for pid, st := range procs {
		if pid == os.Getpid() {
			continue
		}
		if group != 0 && (pid == group || st.group == group) || environHas(pid, mark) {
			ours[pid] = true
		}
	}
	for _, s := range known {
		if procs[s.pid].start == s.start {
			ours[s.pid] = true
		}
	}
	complete(ours, procs)
	var strays []stray
	for pid := range ours {
		if st := procs[pid]; st.state != 'Z' && (group == 0 || st.group != group) {
			strays = append(strays, stray{pid, st.start})
		}
	}
	return strays
}

// complete adds to pids what descends from them and what shares a session with
// one of them: each process is started with a session of its own, so every
// session below it is ours whole.
func complete(pids map[int]bool, procs map[int]procStat) {
	sessions := map[int]bool{}
	for pid := range pids {
		sessions[procs[pid].session] = true
	}
	for grew := true; grew; {
		grew = false
		for pid, st := range procs {
			if !pids[pid] && st.state != 'Z' && (pids[st.parent] || sessions[st.session]) {
				pids[pid], sessions[st.session], grew = true, true, true
			}
		}
	}
}

// procStat is what a line of /proc/PID/stat tells.
type procStat struct {
	state   byte
	parent  int
	group   int
	session int
	start   uint64 // in clock ticks since boot
}

func readProcesses() map[int]procStat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // no /proc: the group is all that can be found
	}
	procs := make(map[int]procStat, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, ok := readStat(pid); ok {
			procs[pid] = st
		}
	}
	return procs
}

func readStat(pid int) (procStat, bool) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	// The second field is the command in parentheses, which may hold anything.
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return procStat{}, false
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 20 {
		return procStat{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	session, err3 := strconv.Atoi(string(fields[3]))
	start, err4 := strconv.ParseUint(string(fields[19]), 10, 64)
	ok := err1 == nil && err2 == nil && err3 == nil && err4 == nil
	return procStat{fields[0][0], parent, group, session, start}, ok
}

// environHas reports whether the environment that pid was started with holds
// the mark.
func environHas(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	// Without one it is gone, or another user's and so not ours.
	return err == nil && bears(string(env), mark)
}
