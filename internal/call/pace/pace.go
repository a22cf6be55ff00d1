// Package pace bounds how fast unrequested data is read: a peer that sends such data without end would
// keep a processor busy (SPEC S2). It is slowed down instead, as by a slow reader. Sleep and
// Await wait for a time.
package pace

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// MaxLines bounds the lines, messages or fields per second that do not answer a request.
	MaxLines = 20_000
	// MaxBytes bounds their bytes per second.
	MaxBytes = 8 << 20
)

// Pace is the pace of one stream. Its zero value is ready to use. It is not safe for concurrent use.
type Pace struct {
	began        time.Time // the second that is counted
	lines, bytes int
}

// maxAhead bounds one wait.
const maxAhead = time.Minute

// Wait counts what was read. If that is too much for the present second, it waits until it has taken as
// many seconds as it would in small parts, at most a minute, or for done, which may be nil.
func (p *Pace) Wait(done <-chan struct{}, lines, bytes int) { wait(done, p.count(lines, bytes)) }

// count counts what was read, and returns how long to wait.
func (p *Pace) count(lines, bytes int) (left time.Duration) {
	p.lines += lines
	p.bytes += bytes
	if p.lines < MaxLines && p.bytes < MaxBytes { // as a rule; no clock is read
		return 0
	}
	seconds := min(max(float64(p.lines)/MaxLines, float64(p.bytes)/MaxBytes), maxAhead.Seconds())
	p.lines, p.bytes = 0, 0
	now := time.Now()
	left = min(max(time.Duration(seconds*float64(time.Second))-now.Sub(p.began), 0), maxAhead)
	p.began = now.Add(left)
	return left
}

func wait(done <-chan struct{}, left time.Duration) {
	if left == 0 {
		return
	}
	select {
	case <-time.After(left):
	case <-done:
	}
}

// Shared is one pace of several streams. Its zero value is ready to use, from any goroutine.
type Shared struct {
	mu   sync.Mutex
	pace Pace
}

// Wait is like Pace.Wait. If several streams have read too much for a second, each waits for seconds of
// its own, at most a minute.
func (s *Shared) Wait(done <-chan struct{}, lines, bytes int) {
	s.mu.Lock()
	left := s.pace.count(lines, bytes)
	s.mu.Unlock()
	wait(done, left)
}

// Reader returns r, whose bytes are counted as they are read.
func (p *Pace) Reader(r io.Reader) io.Reader { return reader{p, r} }

type reader struct {
	pace *Pace
	r    io.Reader
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.pace.Wait(nil, 0, n)
	return n, err
}

// Await waits until the work is done, for most at most. done, which may be nil, ends the wait as well.
func Await(done <-chan struct{}, work *sync.WaitGroup, most time.Duration) {
	worked := make(chan struct{})
	go func() { // returns after the last of the work
		work.Wait()
		close(worked)
	}()
	select {
	case <-worked:
	case <-time.After(most):
	case <-done:
	}
}

// Sleep waits, and reports false if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
