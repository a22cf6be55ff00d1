package procfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is what a line of /proc/PID/stat tells.
type Stat struct {
	State   byte
	Parent  int
	Group   int
	Session int
	Threads int    // that have not ended; its first one counts until it is reaped
	Start   uint64 // in clock ticks since boot
}

// Dead reports whether a process has ended and only waits to be reaped. The state
// is its first thread's: while others live, so does the process.
func (st Stat) Dead() bool { return (st.State == 'Z' || st.State == 'X') && st.Threads <= 1 }

// PIDs lists the processes that there are. Where there is no /proc it
// lists none: the group is all that can be found there. Any other error means
// that nobody can know now.
func PIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // only read
	names, err := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// All returns what can be known of every process.
func All() map[int]Stat {
	pids, _ := PIDs() // what is listed is better than nothing
	procs := make(map[int]Stat, len(pids))
	for _, pid := range pids {
		if st, ok := Read(pid); ok {
			procs[pid] = st
		}
	}
	return procs
}

// Read returns what can be known of a process, and whether it is there.
func Read(pid int) (Stat, bool) {
	st, err := StatOf(pid)
	return st, err == nil
}

// errOdd says that a line of /proc is not as it has ever been.
var errOdd = errors.New("not understood")

// StatOf does as Read, with the reason where nothing is known.
func StatOf(pid int) (Stat, error) {
	var buf [2048]byte // 51 numbers, and a name of at most 64 bytes
	fields, err := fieldsOf(pid, buf[:])
	if err != nil {
		return Stat{}, err
	}
	number := func(i int) int {
		n, convErr := strconv.Atoi(string(fields[i]))
		err = errors.Join(err, convErr)
		return n
	}
	return Stat{fields[0][0], number(1), number(2), number(3), number(17), uint64(number(19))}, err
}

// fieldsOf returns the fields of /proc/PID/stat from the third on, those that
// stand behind the name.
func fieldsOf(pid int, buf []byte) ([][]byte, error) {
	line, err := File(pid, "stat", buf)
	if err != nil {
		return nil, err
	}
	// The second field is the command in parentheses, which may hold anything.
	end := bytes.LastIndexByte(line, ')')
	fields := bytes.Fields(line[end+1:])
	if end < 0 || len(fields) < 22 {
		return nil, errOdd
	}
	return fields, nil
}

// File reads a file of /proc without what os.ReadFile does for others: a
// look at a tree reads hundreds of them. It reads into buf, as much as that holds.
func File(pid int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // only read
	for {
		n, err := unix.Read(fd, buf) // the kernel fills what it is given
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		return buf[:n], nil
	}
}

// OutOfFiles reports whether an error says nothing of the process that was asked
// about: Orla has no descriptor left to look with.
func OutOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// tick is the unit of time in /proc/PID/stat, which is the same on every
// machine that Go runs on (USER_HZ).
const tick = time.Second / 100

// Usage returns what one process takes: its memory, and the time that it and the
// children that it waited for have spent. It takes nothing once it has ended.
func Usage(pid int) (rss int64, cpu time.Duration, ok bool) {
	var buf [2048]byte
	fields, err := fieldsOf(pid, buf[:])
	if err != nil {
		return 0, 0, false
	}
	number := func(field int) int64 { // as proc(5) counts
		n, _ := strconv.ParseInt(string(fields[field-3]), 10, 64) // it is one
		return n
	}
	if (Stat{State: fields[0][0], Threads: int(number(20))}).Dead() {
		return 0, 0, false
	}
	// utime, stime, and the same of children that were waited for.
	ticks := number(14) + number(15) + number(16) + number(17)
	return number(24) * int64(os.Getpagesize()), time.Duration(ticks) * tick, true
}
