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

// logWriter writes lines to a reader that may stop reading, such as an MCP client that
// never reads its server's stderr. When a line has not been written within stallAfter,
// the lines after it are dropped until it is, so that Orla goes on.
//
// Until then a line has been written when Write or write returns.
type logWriter struct {
	to    io.Writer
	ready func() bool // reports whether to takes a short line without waiting
	lines chan []byte
	taken chan outcome // of the line that is being written

	mu      sync.Mutex // guards what follows; held for stallAfter at most
	stalled bool       // the last line has not been taken yet
	dropped int        // lines since then, until lost has told of them
	total   int64      // lines that were dropped in all
}

// outcome is how the writing of a line ended.
type outcome struct {
	n   int
	err error
}

// newLogWriter starts a writer to w. ready may be nil, if that cannot be known. It
// ends by end, or with the process: a write that is stuck cannot be taken back.
func newLogWriter(w io.Writer, ready func() bool) *logWriter {
	s := &logWriter{to: w, ready: ready, lines: make(chan []byte), taken: make(chan outcome, 1)}
	go func() {
		for line := range s.lines {
			n, err := w.Write(line)
			s.taken <- outcome{n, err}
		}
		if c, ok := w.(io.Closer); ok {
			_ = c.Close() // each line has been written by itself
		}
	}()
	return s
}

// end ends the writing, and closes what was written to when the last line has
// been taken. Nothing may be written any more.
func (s *logWriter) end() { close(s.lines) }

func (s *logWriter) Write(line []byte) (int, error) { return s.write(line, 1) }

// write writes some lines as if they were one.
func (s *logWriter) write(line []byte, count int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck() {
		s.dropped += count
		s.total += int64(count)
		return len(line), nil
	}
	if len(line) <= pipeBuf && s.ready != nil && s.ready() {
		return s.to.Write(line) // most lines need not go the way over the goroutine
	}
	s.lines <- bytes.Clone(line) // taken at once: nothing is being written
	// In two halves: where all of Orla stood still, the second one begins after that.
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

// pipeBuf is what a pipe that can be written to has room for (PIPE_BUF).
const pipeBuf = 4 << 10

// roomIn returns what reports whether the reader of a file, or the disk, takes
// a line without waiting; nil for what is no file.
func roomIn(w io.Writer) func() bool {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		return func() bool { return true } // as poll(2) would say each time
	}
	fd := int32(f.Fd()) // it stays open for as long as it is written to
	return func() bool {
		fds := []unix.PollFd{{Fd: fd, Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n == 1 && fds[0].Revents == unix.POLLOUT
	}
}

// stuck reports whether the last line is still being written.
func (s *logWriter) stuck() bool {
	select {
	case <-s.taken: // nobody is left to tell of an error
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

// lost returns how many lines were dropped, once, and once lines are taken again, or
// ever if the writer is to end.
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
