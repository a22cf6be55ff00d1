package main

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

// steady writes lines for a reader that may stop reading, as an MCP client does
// that never looks at the stderr of its server. While a line has not been taken
// for stallAfter, the lines after it are dropped, so that Orla goes on.
//
// Until then a line has been written when Write returns.
type steady struct {
	to    io.Writer
	fd    int // of to, if it is a file; -1 if not
	lines chan []byte
	taken chan outcome // of the line that is being written

	mu      sync.Mutex // guards what follows; held for stallAfter at most
	stalled bool       // the last line has not been taken yet
	dropped int        // lines since then, until lost has told of them
	total   int64      // lines that were dropped in all
}

// outcome is how the writing of a line ended.
type outcome struct{ err error }

// newSteady starts a writer to w. It ends with the process: a write that is
// stuck cannot be taken back.
func newSteady(w io.Writer) *steady {
	s := &steady{to: w, fd: -1, lines: make(chan []byte), taken: make(chan outcome, 1)}
	if f, ok := w.(*os.File); ok {
		s.fd = int(f.Fd()) // it is written to for as long as the process lives
	}
	go func() {
		for line := range s.lines {
			_, err := w.Write(line)
			s.taken <- outcome{err}
		}
	}()
	return s
}

func (s *steady) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck() {
		s.dropped++
		s.total++
		return len(line), nil
	}
	if len(line) <= pipeBuf && s.room() {
		return s.to.Write(line)
	}
	s.lines <- bytes.Clone(line) // taken at once: nothing is being written
	wait := time.NewTimer(stallAfter)
	defer wait.Stop()
	select {
	case written := <-s.taken:
		return len(line), written.err
	case <-wait.C:
		s.stalled = true
		return len(line), nil
	}
}

// pipeBuf is what a pipe that can be written to has room for (PIPE_BUF).
const pipeBuf = 4 << 10

// room reports whether the reader, or the disk, takes a line without waiting:
// that saves most lines the way over the goroutine.
func (s *steady) room() bool {
	if s.fd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents == unix.POLLOUT
}

// stuck reports whether the last line is still being written.
func (s *steady) stuck() bool {
	select {
	case <-s.taken: // nobody is left to tell of an error
		s.stalled = false
	default:
	}
	return s.stalled
}

// droppedInAll returns how many lines were dropped since the start.
func (s *steady) droppedInAll() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// lost returns how many lines were dropped, once, and once lines are taken again.
func (s *steady) lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped == 0 || s.stuck() {
		return 0
	}
	n := s.dropped
	s.dropped = 0
	return n
}
