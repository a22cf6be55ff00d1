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

// Stat has the fields of /proc/PID/stat that Orla uses.
type Stat struct {
	State   byte
	Parent  int
	Group   int
	Session int
	Threads int    // that have not ended; the first thread counts until it is reaped
	Start   uint64 // in clock ticks since boot
}

// Dead reports whether a process has ended and only has to be reaped. State is that of the first
// thread: the process is alive while other threads are.
func (st Stat) Dead() bool { return (st.State == 'Z' || st.State == 'X') && st.Threads <= 1 }

// PIDs lists all processes. Without /proc it returns none and no error: only a process's group can
// be found then. Any other error means that the processes cannot be known at the moment.
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

// All returns the Stat of every process.
func All() map[int]Stat {
	pids, _ := PIDs() // on an error, the pids that were listed are used
	procs := make(map[int]Stat, len(pids))
	for _, pid := range pids {
		if st, ok := Read(pid); ok {
			procs[pid] = st
		}
	}
	return procs
}

// Read returns the Stat of a process, and whether it exists.
func Read(pid int) (Stat, bool) {
	st, err := StatOf(pid)
	return st, err == nil
}

// errOdd says that a line of /proc does not have the documented format.
var errOdd = errors.New("not understood")

// StatOf is Read with the error.
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
	// The second field is the command in parentheses, which may contain any character.
	end := bytes.LastIndexByte(line, ')')
	fields := bytes.Fields(line[end+1:])
	if end < 0 || len(fields) < 22 {
		return nil, errOdd
	}
	return fields, nil
}

// File reads a file of /proc into buf, or into a larger buffer. It is cheaper than os.ReadFile:
// looking at a tree reads hundreds of files.
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

// OutOfFiles reports whether err means that Orla has no free descriptor, which says nothing about
// the process.
func OutOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is the same on every machine that Go
// runs on.
const tick = time.Second / 100

// Usage returns the memory of one process in bytes, and the CPU time that it and the children that
// it waited for have used. ok is false once it has ended.
func Usage(pid int) (rss int64, cpu time.Duration, ok bool) {
	var buf [2048]byte
	fields, err := fieldsOf(pid, buf[:])
	if err != nil {
		return 0, 0, false
	}
	number := func(field int) int64 { // numbered as in proc(5)
		n, _ := strconv.ParseInt(string(fields[field-3]), 10, 64) // the kernel writes only numbers
		return n
	}
	if (Stat{State: fields[0][0], Threads: int(number(20))}).Dead() {
		return 0, 0, false
	}
	// utime, stime, cutime, cstime: the last two are those of children that were waited for.
	ticks := number(14) + number(15) + number(16) + number(17)
	return number(24) * int64(os.Getpagesize()), time.Duration(ticks) * tick, true
}
