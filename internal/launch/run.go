package launch

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
)

// chunk is how much of a stream is read at once, and maxRest how much is read at
// the end of one that somebody else still writes to: the largest pipe that an
// ordinary user can have.
const (
	chunk   = 32 << 10
	maxRest = 1 << 20
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// Ran is how a process ended that Run stayed with.
type Ran struct {
	Exit
	Stopped bool // Run stopped it, since its context was over
}

// Run starts a process that has Spec.Input, and takes what it prints until the
// process itself has ended: by itself, or by Stop when ctx is over. One that
// SIGKILL does not end is given up, and nobody knows its exit. It never waits for
// a descendant that holds the streams open: what is in the pipes when the process
// ends is the last that stdout and stderr are called with, each with pieces that
// it may not keep, and never by two at once. They may be called at the same time.
// If one of them panics, the process is killed and Run panics too.
// The error is Start's.
func Run(ctx context.Context, l Launcher, spec Spec, stdout, stderr func([]byte)) (Ran, error) {
	if here, ok := l.(localLauncher); ok {
		return here.local.run(ctx, spec, stdout, stderr)
	}
	p, err := l.Start(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	return follow(ctx, p, stdout, stderr), nil
}

// follow is Run for a process that has been started.
func follow(ctx context.Context, p Process, stdout, stderr func([]byte)) Ran {
	_, out, err := p.Streams()
	var streams sync.WaitGroup
	var panicked recovered.Later
	for f, take := range map[*os.File]func([]byte){out: stdout, err: stderr} {
		streams.Go(func() {
			defer panicked.Catch(p.Kill)
			drain(f, take)
		})
	}

	stopped := false
	select {
	case <-p.Exited():
	case <-ctx.Done():
		stopped = true
		p.Stop()
		select {
		case <-p.Exited(): // SIGKILL sees to it within the grace
		case <-p.Gone(): // or nothing does
		}
	}
	exit := Exit{Code: -1}
	if IsClosed(p.Exited()) {
		exit = p.Exit()
	}
	past := time.Unix(1, 0)
	for _, f := range []*os.File{out, err} {
		_ = f.SetReadDeadline(past) // wakes its reader; a closed file has none
	}
	streams.Wait()
	panicked.Raise()
	return Ran{Exit: exit, Stopped: stopped}
}

// IsClosed reports whether a channel is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain reads f to its end, or until f's deadline passes and the pipe is empty,
// and closes it.
func drain(f *os.File, take func([]byte)) {
	defer func() { _ = f.Close() }() // only read
	buf, _ := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := f.Read(buf[:])
		take(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			drainRest(f, buf[:], take)
			return
		}
		if err != nil {
			return // io.EOF, or a pipe that is gone, which is the same
		}
	}
}

// drainRest takes what is in the pipe now without waiting for more.
func drainRest(f *os.File, buf []byte, take func([]byte)) {
	if f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // the error would be a closed file
		takeRest(int(fd), buf, take)
		return true
	})
}

// takeRest takes what is in a pipe that does not block.
func takeRest(fd int, buf []byte, take func([]byte)) {
	for rest := maxRest; rest > 0; {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return // io.EOF, EAGAIN: nothing is left
		}
		take(buf[:n])
		rest -= n
	}
}
