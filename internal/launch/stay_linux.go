package launch

import (
	"context"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stays is how many callers of Run may each keep a thread until their process has ended. All others
// use the runtime's poller, as callers of Start do. A thread that waits also keeps one of the
// runtime's processors until sysmon takes it, which can take 20 ms; so one processor is left for
// everything else.
func stays() int { return min(max(runtime.GOMAXPROCS(0)-1, 1), maxStays) }

// maxStays bounds stays. It is small, since reserveThreads starts these threads in advance.
const maxStays = 16

// run implements Run. A caller that keeps its thread avoids the most expensive part of a short call:
// threads that wake each other, one for the fork and one each for the two streams and the end.
func (l *Local) run(ctx context.Context, spec Spec, stdout, stderr func([]byte)) (Ran, error) {
	spec.brief = true
	select {
	case l.stays <- struct{}{}:
		defer func() { <-l.stays }()
		runtime.Gosched()              // else goroutines that wait for this processor, such as net/http's reader, wait for the fork too
		defer runtime.UnlockOSThread() // spawnOnce locks it: the parent death signal follows the thread that forks
		spec.stay = true
	default:
	}
	p, err := l.begin(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	if !spec.stay || p.pidfd == none {
		p.openStreams()
		go p.attend() // attend does procs.Done
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
		go p.attend() // it may still end
		return Ran{Exit: Exit{Code: -1}, Stopped: stopped}, nil
	}
	p.depart(func(rest func()) { go rest() }) // depart does procs.Done
	<-p.exited
	return Ran{Exit: p.Exit(), Stopped: stopped}, nil
}

// lookForLost is how often, in milliseconds, take checks whether Orla has stopped waiting for the
// process: no descriptor shows that.
const lookForLost = 1000

// take reads the output of the process until it has ended. It reports false if Orla has stopped
// waiting for it because SIGKILL did not end it.
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
			continue // EINTR: polling three descriptors cannot fail otherwise
		}
		for i, take := range takers {
			if asked[i].Revents == 0 {
				continue
			}
			over := asked[i].Revents&unix.POLLIN == 0 // it is empty, and no process writes to it any more
			if !over {
				n, err := syscall.Read(p.pipes[1+i], buf[:])
				if n > 0 {
					take(buf[:n])
				}
				over = n <= 0 && err != syscall.EAGAIN && err != syscall.EINTR
			}
			if over {
				closeAll(p.pipes[1+i : 2+i])
				asked[i].Fd = none // poll ignores it
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
