package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/launch"
)

const (
	// maxLog bounds how much of a container's log is read.
	maxLog = 64 << 20
	// lastLines is how long a log may take to end after its container.
	lastLines = 2 * time.Second
	// logTries is how many times the log of an ended container is requested.
	logTries = 3
)

// errLogFull is the end of a log that is too long.
var errLogFull = errors.New("the log is too long")

// copyLog copies the log to stdout until the container has ended and the log is complete. A stream
// that breaks is continued where it broke: a log only grows. If the log cannot be read to its end,
// unread is the reason.
func (p *process) copyLog() {
	defer recovered.To(p.cluster.opts.Log, "read a Job's log", func(any) { p.unread = errPanicked })
	var passed int64
	var err error
	pause := firstLook
	for tries := 0; tries < logTries; {
		over := launch.IsClosed(p.ended)
		if over {
			tries++
		}
		before := passed
		err = p.readLog(&passed, !over)
		switch {
		case errors.Is(err, errLogFull):
			p.cluster.opts.Log.Warn("the rest of a Job's log is dropped", "job", p.name, "bytes", passed)
			return
		case errors.Is(err, syscall.EPIPE): // the caller does not read
			return
		case err == nil && (over || p.endsSoon()):
			return
		case passed > before:
			pause = firstLook
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastLook)
		case <-p.ended:
			if over && !pace.Sleep(p.ctx, pause) {
				return
			}
		}
	}
	p.unread = fault.Wrap(fault.ExecutionFailed, err, "isolation_mode kubernetes: the container has ended, and its log cannot be read to the end")
}

// endsSoon waits a moment for the container's end, and reports whether it is known: a log usually
// ends because its container has.
func (p *process) endsSoon() bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(lastLines):
		return false
	}
}

// readLog reads the log from its beginning, and copies what follows the first *passed bytes.
func (p *process) readLog(passed *int64, follow bool) error {
	client, err := p.cluster.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if follow {
		p.carrying.Go(func() { p.hurry(ctx, cancel) })
	} else {
		bound := time.AfterFunc(requestTime, cancel)
		defer bound.Stop()
	}
	stream, err := client.Stream(ctx, kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: client.namespace, Name: p.pod, Part: "log", Query: url.Values{
		"container": {container}, "follow": {strconv.FormatBool(follow)}, "limitBytes": {strconv.Itoa(maxLog)},
	}})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // only read
	if _, err := io.CopyN(io.Discard, stream, *passed); errors.Is(err, io.EOF) {
		return nil // nothing new
	} else if err != nil {
		return err
	}
	n, err := io.Copy(p.out, io.LimitReader(stream, maxLog-*passed))
	*passed += n
	if *passed >= maxLog {
		return errLogFull
	}
	return err
}

// hurry ends a stream that does not end by itself after its container has.
func (p *process) hurry(ctx context.Context, cancel context.CancelFunc) {
	select {
	case <-p.ended:
		if pace.Sleep(ctx, lastLines) {
			cancel()
		}
	case <-ctx.Done():
	}
}
