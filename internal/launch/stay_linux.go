package launch

import (
	"context"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stays is how many callers of Run may keep a thread each until their process
// has ended. The rest share the runtime's poller, as all do that call Start. A
// thread that stays keeps one of the runtime's processors as well, until the
// monitor takes it, which can take 20 ms: one is left to all else.
func stays() int { return min(max(runtime.GOMAXPROCS(0)-1, 1), maxStays) }

// maxStays bounds stays: the threads are there before they are needed
// (reserveThreads), so they have to be few.
const maxStays = 16

// run is Run. A caller that stays with its process on one thread spares what
// costs most of a short call: threads that wake each other, one to fork, and one
// each for the two streams and the end.
func (l *Local) run(ctx context.Context, spec Spec, stdout, stderr func([]byte)) (Ran, error) {
	select {
	case l.stays <- struct{}{}:
		defer func() { <-l.stays }()
		runtime.Gosched()      // what waits for this processor, such as net/http's reader, would wait for the fork as well
		runtime.LockOSThread() // the death signal follows the thread that forks
		defer runtime.UnlockOSThread()
		spec.stay = true
	default:
	}
	p, err := l.begin(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	if !spec.stay || p.pidfd == none {
		p.openStreams()
		go p.attend() // leaves procs
		return follow(ctx, p, stdout, stderr), nil
	}
	told := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(told)
		p.Stop()
	})
	taken := false
	defer func() {
		if !taken { // stdout or stderr has panicked
			forget()
			closeAll(p.pipes[:])
			p.Kill()
			go p.attend()
		}
	}()
	ended := p.take(stdout, stderr)
	taken = true
	stopped := !forget()
	if stopped {
		<-told
	}
	if !ended {
		go p.attend() // it may end after all
		return Ran{Exit: Exit{Code: -1}, Stopped: stopped}, nil
	}
	p.depart(func(rest func()) { go rest() }) // leaves procs
	<-p.exited
	return Ran{Exit: p.Exit(), Stopped: stopped}, nil
}

// lookForLost is how often, in milliseconds, it is looked whether a process was
// given up, of which no descriptor tells.
const lookForLost = 1000

// take takes what the process prints until it has ended. It reports false when
// it was given up, as what SIGKILL does not end.
func (p *LocalProcess) take(stdout, stderr func([]byte)) bool {
	takers := [...]func([]byte){stdout, stderr}
	buf, _ := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	asked := [...]unix.PollFd{
		{Fd: int32(p.pipes[1]), Events: unix.POLLIN},
		{Fd: int32(p.pipes[2]), Events: unix.POLLIN},
		{Fd: int32(p.pidfd), Events: unix.POLLIN},
	}
	for end := &asked[2]; end.Revents == 0; {
		if IsClosed(p.gone) {
			closeAll(p.pipes[:])
			return false
		}
		if _, err := unix.Poll(asked[:], lookForLost); err != nil {
			continue // EINTR: three descriptors can be polled at all times
		}
		for i, take := range takers {
			if asked[i].Revents == 0 {
				continue
			}
			switch n, err := syscall.Read(p.pipes[1+i], buf[:]); {
			case n > 0:
				take(buf[:n])
			case err != syscall.EAGAIN && err != syscall.EINTR:
				closeAll(p.pipes[1+i : 2+i]) // nobody writes to it any more
				asked[i].Fd = none           // which poll leaves out
				asked[i].Revents = 0
			}
		}
	}
	for i, take := range takers {
		if p.pipes[1+i] != none {
			takeRest(p.pipes[1+i], buf[:], take)
		}
	}
	closeAll(p.pipes[:])
	_ = unix.Close(p.pidfd) // nothing was written to it
	return true
}
