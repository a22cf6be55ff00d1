package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// logFile follows a file that Orla logs to, through rotations, to its end.
type logFile struct {
	path string
	done chan struct{} // closed when nobody writes to it any more

	mu      sync.Mutex // guards what follows
	current *os.File   // what is read now; nil before there is one
	read    int64      // bytes of it
}

// follow hands out lines until done is closed and all is read.
func (f *logFile) follow(line func([]byte)) {
	for {
		over := false
		select {
		case <-f.done:
			over = true
		case <-time.After(20 * time.Millisecond):
		}
		f.drain(line)
		if f.rotated() || over && !f.open() {
			// What was on its way when the name changed still comes to the old file.
			<-time.After(200 * time.Millisecond)
			f.drain(line)
			f.next()
			f.drain(line)
		}
		if over {
			return
		}
	}
}

func (f *logFile) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current != nil
}

// rotated reports whether another file has the name.
func (f *logFile) rotated() bool {
	named, err := os.Stat(f.path)
	if err != nil {
		return false // there is none yet
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return true
	}
	read, err := f.current.Stat()
	return err != nil || !os.SameFile(named, read)
}

// next opens the file that has the name now.
func (f *logFile) next() {
	file, err := os.Open(f.path)
	if err != nil {
		return // the next look finds it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		_ = f.current.Close() // only read
	}
	f.current, f.read = file, 0
}

// drain hands out all whole lines that are not read yet.
func (f *logFile) drain(line func([]byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return
	}
	in := bufio.NewReader(io.NewSectionReader(f.current, f.read, 1<<40))
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			return // the rest of a line is to come
		}
		f.read += int64(len(raw))
		line(bytes.TrimSpace(raw))
	}
}

// close ends the file's descriptor, when nobody follows it any more.
func (f *logFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return errors.New("there was no log_file")
	}
	return f.current.Close()
}

// caughtUp reports whether all whole lines of the file are read. A line that did
// not fit on the disk has no end; it is whole on stderr.
func (f *logFile) caughtUp() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	named, err := os.Stat(f.path)
	if err != nil || f.current == nil {
		return false
	}
	read, err := f.current.Stat()
	if err != nil || !os.SameFile(named, read) {
		return false
	}
	rest, err := io.ReadAll(io.NewSectionReader(f.current, f.read, read.Size()-f.read))
	return err == nil && !bytes.Contains(rest, []byte("\n"))
}

// timed is a line and when it was written.
type timed struct {
	at   time.Time
	line map[string]any
}

// inTurn sorts lines that came by two ways, of which each is in order. Equal
// lines are one: of a line that did not fit into the file the whole is on stderr.
func inTurn(lines []timed) []timed {
	slices.SortStableFunc(lines, func(a, b timed) int { return a.at.Compare(b.at) })
	return slices.CompactFunc(lines, func(a, b timed) bool {
		return a.at.Equal(b.at) && cmp.Compare(text(a.line, "tool")+text(a.line, "to"), text(b.line, "tool")+text(b.line, "to")) == 0
	})
}
