package container

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch/procfs"
	"github.com/orla-project/orla/internal/launch/trees"
)

// monitorPauses are the pauses before endMonitors looks for the first times: a conmon whose container has ended
// ends by itself. The last one is repeated.
var monitorPauses = [...]time.Duration{0, 50 * time.Millisecond, 400 * time.Millisecond, time.Second, 50 * time.Millisecond}

// endMonitors ends the processes that podman leaves if it is killed while it makes a container: conmon, and its
// children. podman does not know them, so that podman rm does not end them. Only processes of this user with the
// container's name after -n, and their children, are ended.
func endMonitors(ctx context.Context, name string) error {
	mark := []byte("\x00-n\x00" + name + "\x00")
	for look := 0; ; look++ {
		last := len(monitorPauses) - 1
		if !pace.Sleep(ctx, monitorPauses[min(look, last)]) {
			return ctx.Err()
		}
		monitors, err := monitorsWith(mark)
		if err != nil || len(monitors) == 0 {
			return err
		}
		if look < last-1 {
			continue
		}
		// Its children first: when conmon is gone, nothing shows to whom they belong.
		children, err := childrenOf(monitors)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			children = monitors
		}
		for _, p := range children {
			p.Signal(syscall.SIGKILL)
		}
	}
}

// monitorsWith returns the processes of this user whose command lines contain mark.
func monitorsWith(mark []byte) ([]trees.Process, error) {
	buf := make([]byte, 16<<10)
	return processes(func(pid int, _ procfs.Stat) bool {
		line, err := procfs.File(pid, "cmdline", buf)
		var owner syscall.Stat_t
		return err == nil && bytes.Contains(line, mark) &&
			syscall.Stat("/proc/"+strconv.Itoa(pid), &owner) == nil && int(owner.Uid) == os.Geteuid()
	})
}

// childrenOf returns the live children of processes.
func childrenOf(parents []trees.Process) ([]trees.Process, error) {
	return processes(func(_ int, st procfs.Stat) bool {
		return slices.ContainsFunc(parents, func(p trees.Process) bool { return p.PID == st.Parent })
	})
}

// processes returns the live processes that are wanted.
func processes(wanted func(pid int, st procfs.Stat) bool) (found []trees.Process, err error) {
	pids, err := procfs.PIDs()
	for _, pid := range pids {
		if st, ok := procfs.Read(pid); ok && !st.Dead() && wanted(pid, st) {
			found = append(found, trees.Process{PID: pid, Start: st.Start})
		}
	}
	return found, err
}
