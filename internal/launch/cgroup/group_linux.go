package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the cgroup of one tree of processes. Its methods may be called from any goroutine. A nil
// Group has no processes, and its methods do nothing.
type Group struct {
	root    *Root
	dir     string
	name    string
	applied Limits
	file    *os.File          // of dir, for clone3; nil with cgroup v1
	legacy  map[string]string // the folder for each controller with cgroup v1; else nil
}

// Applied returns the limits that the kernel enforces.
func (g *Group) Applied() Limits {
	if g == nil {
		return Limits{}
	}
	return g.applied
}

// bound sets the limits that can be set, and reads back which are in effect.
func (g *Group) bound(l Limits) {
	has := func(controller string) bool { return slices.Contains(g.root.has, controller) }
	if l.Memory > 0 && has("memory") && set(g.dir, "memory.max", strconv.FormatInt(l.Memory, 10)) {
		// A kernel without swap does not have this file, and does not need it.
		if write(g.dir, "memory.swap.max", "0") == nil || !hasSwap() {
			g.applied.Memory = l.Memory
		}
		// A tree that has lost one process is worse than one that is started again.
		_ = write(g.dir, "memory.oom.group", "1")
	}
	if l.CPUs > 0 && has("cpu") && set(g.dir, "cpu.max", cpuMax(l.CPUs)) {
		g.applied.CPUs = l.CPUs
	}
	if l.Pids > 0 && has("pids") && set(g.dir, "pids.max", strconv.Itoa(l.Pids)) {
		g.applied.Pids = l.Pids
	}
}

// cpuMax formats a number of CPUs for cpu.max: microseconds of CPU time in each period.
func cpuMax(cpus float64) string {
	const period, least = 100_000, 1000 // microseconds
	return fmt.Sprintf("%d %d", max(least, int64(cpus*period)), int64(period))
}

// Fd is a descriptor of the cgroup, to start a process in it. It is valid until Remove. It is -1 if
// no process can be started in a cgroup.
func (g *Group) Fd() int {
	if g.file == nil {
		return -1
	}
	return int(g.file.Fd())
}

// Add moves a process into the cgroup. Processes that it has started before stay where they are.
func (g *Group) Add(pid int) error {
	if g.legacy != nil {
		return g.addLegacy(pid)
	}
	return write(g.dir, "cgroup.procs", strconv.Itoa(pid))
}

// Kill kills all processes of the Group, including those that are being started. Before Linux 5.14
// it kills only those that exist now.
func (g *Group) Kill() {
	if g == nil {
		return
	}
	if write(g.dir, "cgroup.kill", "1") == nil {
		return
	}
	for _, pid := range g.Pids() {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// Pids lists the processes of the Group, and of the cgroups that they made below it.
func (g *Group) Pids() []int {
	if g == nil {
		return nil
	}
	var pids []int
	for _, dir := range g.tree() {
		for field := range strings.FieldsSeq(read(dir, "cgroup.procs")) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0 is a process of another pid namespace
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// tree lists the folder of the cgroup and those below it, the deepest last.
func (g *Group) tree() []string {
	dirs := []string{g.dir}
	for i := 0; i < len(dirs); i++ {
		entries, _ := os.ReadDir(dirs[i]) // a folder that is gone has no entries
		for _, e := range entries {
			if e.IsDir() {
				dirs = append(dirs, filepath.Join(dirs[i], e.Name()))
			}
		}
	}
	return dirs
}

// OutOfMemory reports whether the kernel has killed a process of the Group because of its memory
// limit.
func (g *Group) OutOfMemory() bool {
	if g != nil && g.legacy != nil {
		return g.outOfMemoryLegacy()
	}
	return g != nil && g.applied.Memory > 0 && number(read(g.dir, "memory.events"), "oom_kill") > 0
}

// Usage returns the current usage of the Group.
func (g *Group) Usage() Usage {
	if g.legacy != nil {
		return g.usageLegacy()
	}
	u := Usage{Processes: g.Pids(), CPU: number(read(g.dir, "cpu.stat"), "usage_usec")}
	if current, err := strconv.ParseInt(read(g.dir, "memory.current"), 10, 64); err == nil {
		// The kernel frees inactive pages of files when memory is needed.
		u.Memory = max(0, current-number(read(g.dir, "memory.stat"), "inactive_file"))
	}
	return u
}

// number returns the value of a key in a file with lines of the form KEY NUMBER; 0 if it is missing.
func number(text, key string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // the kernel writes only numbers
			return n
		}
	}
	return 0
}

// Remove removes the cgroup, whose processes have ended.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}
	if g.file != nil {
		_ = g.file.Close() // a folder: nothing was written
	}
	err := g.removeFolders()
	g.root.mu.Lock()
	defer g.root.mu.Unlock()
	delete(g.root.names, g.name)
	return err
}

// killWithin kills the processes in the folders until the folders can be removed, or for at most
// patience: a process may fork just before it is killed.
func (g *Group) killWithin(patience time.Duration) error {
	const pause = 5 * time.Millisecond
	for deadline := time.Now().Add(patience); ; <-time.After(pause) {
		g.Kill()
		err := g.removeFolders()
		if err == nil || !errors.Is(err, unix.EBUSY) || !time.Now().Before(deadline) {
			return err
		}
	}
}

func (g *Group) removeFolders() (err error) {
	dirs := g.tree()
	if g.legacy != nil {
		dirs = g.legacyFolders() // it has no folders below: the processes never see them
	}
	for _, dir := range slices.Backward(dirs) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return err
}
