package launch

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/carry"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/procfs"
)

// Give gives a process of Start to the program that follows in this one. It reports false if the process has
// ended or is being ended, or nobody can give it. Then nothing has changed. After it, Gone is closed, and only the
// streams may be used.
func (p *LocalProcess) Give() (ProcessState, bool) {
	p.mu.Lock()
	if p.stopping || p.over || p.given || p.watch == nil || p.alone || p.feed != nil {
		p.mu.Unlock()
		return ProcessState{}, false
	}
	s := ProcessState{PID: p.pid, Mark: p.mark, Tag: p.tag, Whole: p.whole, Grace: p.grace, Applied: p.applied}
	cell, ok := p.cell.Give(p.local.cgroup)
	s.Cell = cell
	for i, f := range [...]*os.File{p.Stdin, p.Stdout, p.Stderr} {
		var err error
		if ok && f != nil {
			s.Streams[i], err = carry.Dup(f)
		}
		ok = ok && f != nil && err == nil
	}
	if !ok {
		p.mu.Unlock()
		return ProcessState{}, false // what was given by then is closed as what nobody takes
	}
	p.given = true
	_ = p.watch.SetReadDeadline(time.Unix(1, 0)) // ends the wait for its end
	p.mu.Unlock()
	<-p.left
	p.local.mu.Lock()
	p.local.given = append(p.local.given, p.pid)
	p.local.mu.Unlock()
	p.leave()
	return s, true
}

// Adopt takes a process that the program before has given. It is an error if it is not a child of this process.
func (l *Local) Adopt(s ProcessState) (*LocalProcess, error) {
	if st, ok := procfs.Read(s.PID); !ok || st.Parent != os.Getpid() {
		return nil, fmt.Errorf("process %d is not a child of this one", s.PID)
	}
	pidfd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", s.PID, err)
	}
	p := &LocalProcess{
		local: l, pid: s.PID, pidfd: pidfd, whole: s.Whole, grace: s.Grace, applied: s.Applied,
		cell:    adoptCell(l.cgroup, s.Cell),
		traces:  traces{mark: s.Mark, tag: s.Tag},
		stop:    stop{ended: make(chan struct{}), ending: make(chan *ending, 1), kill: make(chan struct{})},
		outcome: outcome{exited: make(chan struct{}), gone: make(chan struct{})},
		leaving: leaving{left: make(chan struct{})},
	}
	p.pipes = [3]int{none, none, none}
	for i, f := range [...]**os.File{&p.Stdin, &p.Stdout, &p.Stderr} {
		if *f, err = carry.File(s.Streams[i], "|"); err != nil {
			_ = unix.Close(pidfd)
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = unix.Close(pidfd)
		return nil, errClosed
	}
	l.procs.Add(1)
	_, _ = l.reaper.Starting(func() (int, error) { return s.PID, nil }) // registers it
	p.slot = l.groups.Add(s.PID)
	l.cells.add(s.PID, p.cell)
	go p.attend() // attend does procs.Done
	return p, nil
}

// adoptCell returns the cgroup of a process that was given; nil if it has none.
func adoptCell(root *cgroup.Root, s *cgroup.State) *cgroup.Group {
	if s == nil {
		return nil
	}
	return root.Adopt(*s)
}

// KillLeft kills a process that the program before has given, and that cannot be adopted.
func KillLeft(s ProcessState) {
	if st, ok := procfs.Read(s.PID); ok && st.Parent == os.Getpid() {
		_ = syscall.Kill(-s.PID, syscall.SIGKILL) // it leads its group
	}
}
