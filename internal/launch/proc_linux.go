package launch

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// procStat is what a line of /proc/PID/stat tells.
type procStat struct {
	state   byte
	parent  int
	group   int
	session int
	threads int    // that have not ended; its first one counts until it is reaped
	start   uint64 // in clock ticks since boot
}

// dead reports whether a process has ended and only waits to be reaped. The state
// is its first thread's: while others live, so does the process.
func (st procStat) dead() bool { return (st.state == 'Z' || st.state == 'X') && st.threads <= 1 }

// processIDs lists the processes that there are. Where there is no /proc it
// lists none: the group is all that can be found there. Any other error means
// that nobody can know now.
func processIDs() ([]int, error) {
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

// readProcesses returns what can be known of every process.
func readProcesses() map[int]procStat {
	pids, _ := processIDs() // what is listed is better than nothing
	procs := make(map[int]procStat, len(pids))
	for _, pid := range pids {
		if st, ok := readStat(pid); ok {
			procs[pid] = st
		}
	}
	return procs
}

func readStat(pid int) (procStat, bool) {
	st, err := statOf(pid)
	return st, err == nil
}

// errOdd says that a line of /proc is not as it has ever been.
var errOdd = errors.New("not understood")

func statOf(pid int) (procStat, error) {
	var buf [2048]byte // 51 numbers, and a name of at most 64 bytes
	fields, err := statFields(pid, buf[:])
	if err != nil {
		return procStat{}, err
	}
	number := func(i int) int {
		n, convErr := strconv.Atoi(string(fields[i]))
		err = errors.Join(err, convErr)
		return n
	}
	return procStat{fields[0][0], number(1), number(2), number(3), number(17), uint64(number(19))}, err
}

// execPatience is how often a process in the middle of an exec is asked again,
// with execPause between: it is a matter of microseconds where nobody is in the
// way.
const (
	execPatience = 100
	execPause    = time.Millisecond
)

// environOf returns the environment that a process was started with. That of
// another user's cannot be had, and a zombie has none. Nor has a process that is
// becoming another program, for a moment: that one is asked again.
func environOf(pid int) (string, error) {
	buf := make([]byte, 16<<10)
	for range execPatience {
		env, err := readProc(pid, "environ", buf)
		if err != nil || len(env) > 0 || hasNone(pid) {
			return string(env), err
		}
		<-time.After(execPause)
	}
	return "", nil
}

// hasNone reports whether a process has no environment for good. One that was
// given none knows where it would be; one in the middle of an exec does not yet,
// or thinks for a moment that it is empty, until it has code (create_elf_tables).
// The kernel's own have no memory, nor has what is over.
func hasNone(pid int) bool {
	var buf [2048]byte // as in statOf
	fields, err := statFields(pid, buf[:])
	const memory, code, envStart, envEnd = 20, 23, 47, 48
	if err != nil || len(fields) <= envEnd || string(fields[memory]) == "0" {
		return true
	}
	end := string(fields[envEnd])
	return end != "0" && end == string(fields[envStart]) && string(fields[code]) != "0"
}

// readProc reads a file of /proc without what os.ReadFile does for others: a
// look at a tree reads hundreds of them. It reads into buf, or more.
func readProc(pid int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // only read
	got := 0
	for {
		n, err := unix.Read(fd, buf[got:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		if got += n; got < len(buf) { // the kernel fills what it is given
			return buf[:got], nil
		}
		buf = append(buf, make([]byte, len(buf))...)
	}
}

// outOfFiles reports whether an error says nothing of the process that was asked
// about: Orla has no descriptor left to look with.
func outOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
