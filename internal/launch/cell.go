package launch

import (
	"cmp"
	"context"
	"sync"
	"syscall"

	"github.com/orla-project/orla/internal/launch/cgroup"
)

// Applied says which limits of a tree are in effect.
type Applied struct {
	Tree cgroup.Limits // the limits of the whole tree, enforced by its cgroup
	Each cgroup.Limits // the limits of each process, enforced by rlimits
}

// cells are the cgroups of the running processes.
type cells struct {
	mu    sync.Mutex // guards byPid
	byPid map[int]*cgroup.Group
}

func (c *cells) add(pid int, cell *cgroup.Group) {
	if cell == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPid == nil {
		c.byPid = map[int]*cgroup.Group{}
	}
	c.byPid[pid] = cell
}

func (c *cells) remove(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPid, pid)
}

func (c *cells) of(pid int) *cgroup.Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byPid[pid]
}

// newCell returns the cgroup for a new process; nil if it gets none.
func (l *Local) newCell(spec Spec) *cgroup.Group {
	root := cmp.Or(spec.Cells, l.cgroup)
	if spec.Cell == "" || root == nil {
		return nil
	}
	cell, err := root.New(spec.Cell, spec.Limits)
	if err != nil {
		l.log.Warn("a process gets no cgroup of its own", "tool", spec.Cell, "err", err)
		return nil
	}
	return cell
}

func (l *Local) removeCell(cell *cgroup.Group) {
	if err := cell.Remove(); err != nil {
		l.log.Warn("remove a cgroup", "err", err)
	}
}

// spawnInto starts a process in a cgroup. If the kernel or the seccomp filter of a container does
// not allow that in one step, it moves the process there after the start.
func (l *Local) spawnInto(ctx context.Context, cell *cgroup.Group, spec Spec, attr *syscall.ProcAttr) (spawned, error) {
	if cell == nil {
		return l.spawnRetrying(ctx, spec, attr)
	}
	if fd := cell.Fd(); fd >= 0 {
		enterCgroup(attr.Sys, fd)
		s, err := l.spawnRetrying(ctx, spec, attr)
		if err == nil || !cannotEnter(err) {
			return s, err
		}
		stayOutside(attr.Sys)
	}
	s, err := l.spawnRetrying(ctx, spec, attr)
	if err != nil {
		return s, err // the cgroup was not the cause
	}
	if err := cell.Add(s.pid); err != nil {
		s.free = true
		l.log.Warn("a process is not in the cgroup that was made for it", "tool", spec.Cell, "pid", s.pid, "err", err)
	}
	return s, nil
}

// apply sets those limits for a new process that its cgroup does not enforce.
func (l *Local) apply(s spawned, cell *cgroup.Group, limits cgroup.Limits) Applied {
	var applied Applied
	if !s.free {
		applied.Tree = cell.Applied()
	}
	pid := s.pid
	if limits.Memory > 0 && applied.Tree.Memory == 0 {
		if err := boundMemory(pid, limits.Memory); err != nil {
			l.log.Warn("bound the memory of a process", "pid", pid, "err", err)
		} else {
			applied.Each.Memory = limits.Memory
		}
	}
	return applied
}
