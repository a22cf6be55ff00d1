package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// With cgroup v1, a Group is a folder in each hierarchy. A process cannot be started in it, and its
// processes cannot be killed at once.

// newLegacy makes the folders of a Group that has its name from mkdir.
func (g *Group) newLegacy() error {
	g.legacy = map[string]string{}
	for c, dir := range g.root.legacy {
		g.legacy[c] = filepath.Join(dir, g.name)
	}
	g.dir = g.legacy["memory"]
	for _, dir := range g.legacyFolders() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // mkdir has made one of them
			return err
		}
	}
	return nil
}

// legacyFolders lists the Group's folders, with that of memory first; controllers that are mounted together share one.
func (g *Group) legacyFolders() []string { return foldersOf(g.legacy) }

// boundLegacy sets the limits, and reads back which are in effect.
func (g *Group) boundLegacy(l Limits) {
	if dir := g.legacy["memory"]; l.Memory > 0 && set(dir, "memory.limit_in_bytes", strconv.FormatInt(l.Memory, 10)) {
		err := write(dir, "memory.memsw.limit_in_bytes", strconv.FormatInt(l.Memory, 10)) // memory and swap; must be set after the other
		if err == nil || !hasSwap() {
			g.applied.Memory = l.Memory
		}
	}
	if dir := g.legacy["cpu"]; l.CPUs > 0 {
		quota, period, _ := strings.Cut(cpuMax(l.CPUs), " ")
		if set(dir, "cpu.cfs_period_us", period) && set(dir, "cpu.cfs_quota_us", quota) {
			g.applied.CPUs = l.CPUs
		}
	}
	if dir := g.legacy["pids"]; l.Pids > 0 && set(dir, "pids.max", strconv.Itoa(l.Pids)) {
		g.applied.Pids = l.Pids
	}
}

// addLegacy moves a process into the Group.
func (g *Group) addLegacy(pid int) error {
	for _, dir := range g.legacyFolders() {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// usageLegacy returns the current usage of the Group.
func (g *Group) usageLegacy() Usage {
	u := Usage{Processes: g.Pids()}
	if nanoseconds, err := strconv.ParseInt(read(g.legacy["cpu"], "cpuacct.usage"), 10, 64); err == nil { // exists if cpuacct is mounted with cpu
		u.CPU = nanoseconds / 1000
	}
	if current, err := strconv.ParseInt(read(g.legacy["memory"], "memory.usage_in_bytes"), 10, 64); err == nil {
		u.Memory = max(0, current-number(read(g.legacy["memory"], "memory.stat"), "total_inactive_file"))
	}
	return u
}

// outOfMemoryLegacy reports whether the kernel has killed a process of the Group because of its
// memory limit.
func (g *Group) outOfMemoryLegacy() bool {
	return number(read(g.legacy["memory"], "memory.oom_control"), "oom_kill") > 0
}

// set writes a limit, and reports whether the kernel accepted it.
func set(dir, file, value string) bool {
	return write(dir, file, value) == nil && kept(value, read(dir, file))
}

// kept reports whether a limit reads as it was written: the kernel may round it down to whole pages.
func kept(wrote, reads string) bool {
	want, err1 := strconv.ParseInt(wrote, 10, 64)
	got, err2 := strconv.ParseInt(reads, 10, 64)
	if err1 != nil || err2 != nil {
		return wrote == reads
	}
	return got > 0 && got <= want && want-got < int64(os.Getpagesize())
}

// hasSwap reports whether the machine has swap.
func hasSwap() bool {
	return strings.Count(read("/proc", "swaps"), "\n") > 0 // below the heading
}
