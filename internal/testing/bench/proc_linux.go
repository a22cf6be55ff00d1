package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of CPU times in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf is what another process has used. Its own part is exact; that of its
// children is in ticks, so measure many calls.
func cpuOf(pid int) (cpu, error) {
	// clock_getcpuclockid(3): the id of a process's CPU clock is made from its pid.
	const schedClock = 2
	var own unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &own); err != nil {
		return cpu{}, fmt.Errorf("CPU clock of %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return cpu{}, err
	}
	// The second field is the command in parentheses, which may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const cutime, cstime = 13, 14
	if len(fields) <= cstime {
		return cpu{}, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	c := cpu{own: time.Duration(own.Nano())}
	for _, field := range fields[cutime : cstime+1] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return cpu{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		c.children += time.Duration(n) * tick
	}
	return c, nil
}

// memoryOf is what another process holds.
func memoryOf(pid int) (memory, error) {
	var m memory
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		switch {
		case scan(line, "Rss: %d kB", &kib):
			m.rss = kib << 10
		case scan(line, "Pss: %d kB", &kib):
			m.pss = kib << 10
		}
	}
	if m.rss == 0 {
		return m, fmt.Errorf("%s: no Rss", path)
	}
	return m, nil
}

func scan(line, format string, into ...any) bool {
	_, err := fmt.Sscanf(line, format, into...)
	return err == nil
}

// descriptorsOf counts the files that a process has open.
func descriptorsOf(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// switchesOf counts how often the threads of a process that live now were
// switched to.
func switchesOf(pid int) (int64, error) {
	var total int64
	err := eachTask(pid, "status", func(text string) {
		for line := range strings.Lines(text) {
			var n int64
			if scan(line, "voluntary_ctxt_switches: %d", &n) || scan(line, "nonvoluntary_ctxt_switches: %d", &n) {
				total += n
			}
		}
	})
	return total, err
}

// childrenOf lists the children of a process.
func childrenOf(pid int) ([]int, error) {
	var pids []int
	err := eachTask(pid, "children", func(text string) {
		for field := range strings.FieldsSeq(text) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	})
	return pids, err
}

// exeOf is the file that a process runs.
func exeOf(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) }

// eachTask reads one file of every thread of a process.
func eachTask(pid int, file string, use func(text string)) error {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, file))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil { // a thread may just have ended
			use(string(text))
		}
	}
	return nil
}
