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

// chunk is the size of one read of a stream. maxRest bounds the last read from a pipe that a
// descendant still writes to: it is the largest pipe that an ordinary user can make.
const (
	chunk   = 32 << 10
	maxRest = 1 << 20
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// Ran is how a process of Run ended.
type Ran struct {
	Exit
	Stopped bool // Run stopped it because ctx was done
}

// Run starts a process that has Spec.Input, and passes its output to stdout and stderr until the
// process itself has ended: by itself, or by Stop when ctx is done. If SIGKILL does not end the
// process, Run returns without an exit status.
//
// Run never waits for a descendant that holds the streams open: what is in the pipes when the
// process ends is the last output. stdout and stderr must not keep the slice. Each is called by one
// goroutine at a time, but both may be called at the same time. If one panics, Run kills the process
// and panics too. The error is Start's.
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

// follow does what Run does, for a process that was started.
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
		case <-p.Exited(): // it ends within the grace, by SIGKILL at the latest
		case <-p.Gone(): // or Orla stops waiting for it
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

// drain reads f to its end, or until f's deadline has passed and the pipe is empty. Then it closes
// f.
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
			return // io.EOF, or the pipe is gone, which means the same
		}
	}
}

// drainRest reads what is in the pipe now, without waiting for more.
func drainRest(f *os.File, buf []byte, take func([]byte)) {
	if f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // the only error is a closed file
		takeRest(int(fd), buf, take)
		return true
	})
}

// takeRest reads what is in a non-blocking pipe.
func takeRest(fd int, buf []byte, take func([]byte)) {
	for rest := maxRest; rest > 0; {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return // io.EOF or EAGAIN: nothing is left
		}
		take(buf[:n])
		rest -= n
	}
}
