package main

import (
	"syscall"
	"time"
)

// cpu is CPU time that a process has used since it began.
type cpu struct {
	own      time.Duration // by its own threads, to the microsecond or finer
	children time.Duration // by the children that it has reaped, or by a capsule
}

func (c cpu) total() time.Duration { return c.own + c.children }

func (c cpu) since(before cpu) cpu { return cpu{c.own - before.own, c.children - before.children} }

func (c cpu) plus(d cpu) cpu { return cpu{c.own + d.own, c.children + d.children} }

// ownCPU is what this process has used.
func ownCPU() (cpu, error) {
	var self, children syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return cpu{}, err
	}
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children); err != nil {
		return cpu{}, err
	}
	return cpu{sum(self), sum(children)}, nil
}

func sum(u syscall.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what a process holds, in bytes.
type memory struct {
	rss int64 // resident, pages that others share included
	pss int64 // resident, shared pages counted in part
}
