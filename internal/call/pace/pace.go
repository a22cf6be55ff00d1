// Package pace bounds how fast is read what nobody has asked for. A peer that says
// such things without an end would keep a processor busy (SPEC S2); now it waits, as
// it would for a reader that is slower.
package pace

import (
	"io"
	"time"
)

const (
	// MaxLines is how many lines, messages or fields of a peer's are read in a second
	// that answer nothing.
	MaxLines = 20_000
	// MaxBytes is how many bytes these may have.
	MaxBytes = 8 << 20
)

// Pace is that of one stream. Its zero value is ready. It is not for several
// goroutines at once.
type Pace struct {
	began        time.Time // the second that is counted
	lines, bytes int
}

// Wait counts what was read, and waits for the end of the second if that was too much
// for it, or for done; nil never comes.
func (p *Pace) Wait(done <-chan struct{}, lines, bytes int) {
	p.lines += lines
	p.bytes += bytes
	if p.lines < MaxLines && p.bytes < MaxBytes { // as a rule; no clock is read
		return
	}
	p.lines, p.bytes = 0, 0
	now := time.Now()
	left := time.Second - now.Sub(p.began)
	p.began = now
	if left <= 0 {
		return
	}
	p.began = now.Add(left)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
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
