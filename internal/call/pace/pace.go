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

const (
	// slice is the time in whose amount the clock is not read. It is short: what was read too fast makes the reader
	// wait, and many readers that waited as long as a second would all work in one moment (SPEC N2).
	slice = 10 * time.Millisecond
	// credit is the time whose amount may be read at once after a rest.
	credit = 50 * time.Millisecond
)

// Pace is the pace of one stream. Its zero value is ready to use. It is not safe for concurrent use.
type Pace struct {
	times        int       // see Times; 0 for 1
	until        time.Time // when all that was read before has had its time
	lines, bytes int       // read since
}

// maxAhead bounds one wait.
const maxAhead = time.Minute

// Wait counts what was read. If that was too fast, it waits until it has taken as long as it would in small parts, at most a
// minute, or for done, which may be nil.
func (p *Pace) Wait(done <-chan struct{}, lines, bytes int) { wait(done, p.Count(lines, bytes)) }

// Count counts what was read, and returns how long Wait would wait.
func (p *Pace) Count(lines, bytes int) (left time.Duration) {
	const parts = int(time.Second / slice)
	p.lines += lines
	p.bytes += bytes
	times := max(p.times, 1)
	if p.lines < times*MaxLines/parts && p.bytes < times*MaxBytes/parts { // as a rule; no clock is read
		return 0
	}
	seconds := min(max(float64(p.lines)/MaxLines, float64(p.bytes)/MaxBytes)/float64(times), maxAhead.Seconds())
	p.lines, p.bytes = 0, 0
	now := time.Now()
	if earliest := now.Add(-credit); p.until.Before(earliest) {
		p.until = earliest
	}
	p.until = p.until.Add(time.Duration(seconds * float64(time.Second)))
	if latest := now.Add(maxAhead); p.until.After(latest) {
		p.until = latest
	}
	return max(p.until.Sub(now), 0)
}

// settled reports whether all that was read has had its time.
func (p *Pace) settled() bool { return !p.until.After(time.Now()) }

func wait(done <-chan struct{}, left time.Duration) {
	if left == 0 {
		return
	}
	select {
	case <-time.After(left):
	case <-done:
	}
}

// Times returns a Shared that is so many times as fast.
func Times(times int) Shared { return Shared{pace: Pace{times: times}} }

// Shared is one pace of several streams. Its zero value is ready to use, from any goroutine.
type Shared struct {
	mu   sync.Mutex
	pace Pace
}

// Wait is like Pace.Wait. If several streams have read too fast, each waits for a time of its own, at most a minute.
func (s *Shared) Wait(done <-chan struct{}, lines, bytes int) {
	s.mu.Lock()
	left := s.pace.Count(lines, bytes)
	s.mu.Unlock()
	wait(done, left)
}

// Settled reports whether all that was read has had its time: a new Shared would do the same.
func (s *Shared) Settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.settled()
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
