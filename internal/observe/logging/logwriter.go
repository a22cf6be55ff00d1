package logging

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stallAfter is how long a line of the log waits for its reader.
const stallAfter = time.Second

// logWriter writes lines to a reader that may stop reading, such as an MCP client that never reads
// its server's stderr. If a line is not written within stallAfter, the following lines are dropped
// until it is, so that Orla goes on.
//
// Otherwise a line has been written when Write or write returns.
type logWriter struct {
	to    io.Writer
	ready func() bool // reports whether to accepts a short line without blocking
	lines chan []byte
	taken chan outcome // of the current line

	mu      sync.Mutex // guards the fields that follow; held for stallAfter at most
	stalled bool       // the last line is still being written
	dropped int        // lines since then, until lost has returned them
	total   int64      // lines that were dropped since the start
}

// outcome is the result of writing a line.
type outcome struct {
	n   int
	err error
}

// newLogWriter starts a writer to w. ready may be nil if that cannot be known. It runs until end, or
// until the process ends: a blocked write cannot be cancelled.
func newLogWriter(w io.Writer, ready func() bool) *logWriter {
	s := &logWriter{to: w, ready: ready, lines: make(chan []byte), taken: make(chan outcome, 1)}
	go func() {
		for line := range s.lines {
			n, err := w.Write(line)
			s.taken <- outcome{n, err}
		}
		if c, ok := w.(io.Closer); ok {
			_ = c.Close() // every line was written by its own Write, so closing loses nothing
		}
	}()
	return s
}

// end ends the writer, and closes its output once the last line is written. Nothing may be written
// after it.
func (s *logWriter) end() { close(s.lines) }

func (s *logWriter) Write(line []byte) (int, error) { return s.write(line, 1) }

// write writes count lines at once.
func (s *logWriter) write(line []byte, count int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck() {
		s.dropped += count
		s.total += int64(count)
		return len(line), nil
	}
	if len(line) <= pipeBuf && s.ready != nil && s.ready() {
		return s.to.Write(line) // most lines do not need the goroutine
	}
	s.lines <- bytes.Clone(line) // does not block: no line is being written
	// In two halves: if the whole process was suspended, the second half starts after that.
	for range 2 {
		wait := time.NewTimer(stallAfter / 2)
		select {
		case written := <-s.taken:
			wait.Stop()
			return written.n, written.err
		case <-wait.C:
		}
	}
	s.stalled = true
	return len(line), nil
}

// pipeBuf is how many bytes a writable pipe accepts without blocking (PIPE_BUF).
const pipeBuf = 4 << 10

// roomIn returns a function that reports whether a file accepts a line without blocking; nil if w is
// not a file.
func roomIn(w io.Writer) func() bool {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		return func() bool { return true } // as poll(2) would always report
	}
	fd := int32(f.Fd()) // the file stays open while it is written to
	return func() bool {
		fds := []unix.PollFd{{Fd: fd, Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n == 1 && fds[0].Revents == unix.POLLOUT
	}
}

// stuck reports whether the last line is still being written.
func (s *logWriter) stuck() bool {
	select {
	case <-s.taken: // its error can be reported to nobody
		s.stalled = false
	default:
	}
	return s.stalled
}

// droppedInAll returns how many lines were dropped since the start.
func (s *logWriter) droppedInAll() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// lost returns how many lines were dropped since its last call. While lines are still being dropped
// it returns 0, unless the writer is about to end.
func (s *logWriter) lost(ending bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped == 0 || s.stuck() && !ending {
		return 0
	}
	n := s.dropped
	s.dropped = 0
	return n
}
