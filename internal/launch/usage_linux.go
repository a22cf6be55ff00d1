package launch

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of time in /proc/PID/stat, which is the same on every
// machine that Go runs on (USER_HZ).
const tick = time.Second / 100

// Usage returns what the trees of processes take that Start returned, by the
// ids of their leaders. One that is gone is left out. Of a tree with a cgroup of
// its own the kernel has the numbers. All others cost one look at the processes
// of this machine, and what has made a session of its own is not counted.
func (l *Local) Usage(leaders []int) map[int]Usage {
	trees := make(map[int]Usage, len(leaders))
	asked := make(map[int]bool, len(leaders)) // each leads a session
	for _, leader := range leaders {
		if u, ok := l.usageOfCell(leader); ok {
			trees[leader] = u
			continue
		}
		asked[leader] = true
	}
	if len(asked) == 0 {
		return trees
	}
	pids, _ := processIDs() // what is listed is better than nothing
	for _, pid := range pids {
		session, err := unix.Getsid(pid)
		if err != nil || !asked[session] {
			continue
		}
		if one, ok := usageOf(pid); ok {
			all := trees[session]
			all.RSS += one.RSS
			all.CPU += one.CPU
			all.Processes++
			trees[session] = all
		}
	}
	return trees
}

// usageOf returns what one process takes; none if it has ended.
func usageOf(pid int) (Usage, bool) {
	var buf [2048]byte
	fields, err := statFields(pid, buf[:])
	if err != nil {
		return Usage{}, false
	}
	number := func(field int) int64 { // as proc(5) counts
		n, _ := strconv.ParseInt(string(fields[field-3]), 10, 64) // it is one
		return n
	}
	if (procStat{state: fields[0][0], threads: int(number(20))}).dead() {
		return Usage{}, false
	}
	// utime, stime, and the same of children that were waited for.
	ticks := number(14) + number(15) + number(16) + number(17)
	return Usage{
		RSS: number(24) * int64(os.Getpagesize()),
		CPU: time.Duration(ticks) * tick,
	}, true
}

// statFields returns the fields of /proc/PID/stat from the third on, those that
// stand behind the name.
func statFields(pid int, buf []byte) ([][]byte, error) {
	line, err := readProc(pid, "stat", buf)
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
