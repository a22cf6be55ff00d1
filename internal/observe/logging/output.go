package logging

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/app/systemd"
)

// output writes the lines of the log: to log_file, which can be reopened for logrotate; to the
// journal; or to stderr if there is no other or it fails. A blocked output cannot block Orla (see
// logWriter).
type output struct {
	stderr  *logWriter
	journal *logWriter // started by the first entry; used under mu

	mu       sync.Mutex // guards the fields that follow, and the order of lines
	socket   string     // path of journald's socket
	file     *logWriter // log_file; nil for none
	torn     bool       // file ends with an incomplete line
	trouble  error      // why the last write to file failed; nil if it succeeded
	told     bool       // trouble was logged
	diverted int        // lines that went to stderr instead of file, until that is logged
	waiting  []byte     // lines of writeSoon that are not written yet
	soon     *time.Timer
	latest   time.Time // when writeSoon was last called
	dropped  int64     // lines that closed files had dropped
	untold   int       // those of them that were not logged yet
}

const (
	// linger is how long a line of writeSoon may wait for others, to be written together.
	linger = time.Millisecond
	// crowd is how soon the next line must come for that: waking up later for a single line costs more
	// than writing it at once.
	crowd = 100 * time.Microsecond
)

func newOutput(stderr io.Writer, socket string) *output {
	return &output{stderr: newLogWriter(stderr, roomIn(stderr)), socket: socket}
}

// OpenFile opens log_file for appending. It returns nil for an empty path, which stands for stderr.
func OpenFile(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640) // opening a FIFO does not block
}

// use switches to file, or to stderr if it is nil.
func (o *output) use(file *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	if o.file != nil {
		o.dropped += o.file.droppedInAll()
		o.untold += o.file.lost(true)
		o.file.end()
	}
	o.file, o.torn, o.trouble, o.told, o.diverted = nil, false, nil, false, 0
	if file != nil {
		o.file, o.torn = newLogWriter(file, roomIn(file)), endsTorn(file.Name())
	}
}

// endsTorn reports whether a file ends with an incomplete line: the disk was full, or an earlier
// Orla was killed.
func endsTorn(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false // a FIFO cannot be read here
	}
	file, err := os.Open(path)
	if err != nil {
		return false // it may be writable and not readable
	}
	defer func() { _ = file.Close() }() // it was only read
	last := make([]byte, 1)
	_, err = file.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Write writes a line to log_file or stderr, after the buffered lines.
func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	return len(line), o.writeLocked(line, 1)
}

// writeSoon writes a line within linger, in order. If lines follow each other closely, it writes
// several at once: one write costs more than making the lines of several calls. An output that is
// not a file gets each line at once.
func (o *output) writeSoon(line []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := o.stderr
	if o.file != nil {
		to = o.file
	}
	now := time.Now()
	alone := now.Sub(o.latest) > crowd && len(o.waiting) == 0
	o.latest = now
	if alone || to.ready == nil || len(line) > pipeBuf {
		o.flushLocked()
		return o.writeLocked(line, 1)
	}
	if len(o.waiting)+len(line) > pipeBuf {
		o.flushLocked()
	}
	first := len(o.waiting) == 0
	o.waiting = append(o.waiting, line...)
	switch {
	case !first: // a timer is running
	case o.soon == nil:
		o.soon = time.AfterFunc(linger, o.flush)
	default:
		o.soon.Reset(linger)
	}
	return nil
}

// flush writes the buffered lines.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
}

func (o *output) flushLocked() {
	if len(o.waiting) == 0 {
		return
	}
	_ = o.writeLocked(o.waiting, bytes.Count(o.waiting, []byte("\n"))) // news reports the error
	o.waiting = o.waiting[:0]
}

// writeLocked writes count lines. The caller holds mu.
func (o *output) writeLocked(lines []byte, count int) error {
	if o.file == nil {
		_, err := o.stderr.write(lines, count)
		return err
	}
	whole := lines
	if o.torn {
		whole = append([]byte("\n"), lines...)
	}
	n, err := o.file.write(whole, count)
	if err == nil {
		o.torn, o.trouble, o.told = false, nil, false
		return nil
	}
	// The disk may be full, and may have space again.
	if n > 0 {
		o.torn = whole[n-1] != '\n'
	}
	n = max(0, n-(len(whole)-len(lines)))
	written := bytes.LastIndexByte(lines[:n], '\n') + 1
	count -= bytes.Count(lines[:written], []byte("\n"))
	o.trouble = err
	o.diverted += count
	_, err = o.stderr.write(lines[written:], count)
	return err
}

// record writes an entry to the journal. If the journal is not reachable, it writes a line to
// stderr, with the priority as journald parses it there (sd-daemon(3)).
func (o *output) record(entry, line []byte, priority int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	if o.journal == nil {
		journal := systemd.NewJournal(o.socket)
		o.journal = newLogWriter(journal, journal.Ready)
	}
	_, err := o.journal.Write(entry)
	if err != nil {
		prefixed := append(strconv.AppendInt([]byte("<"), int64(priority), 10), '>')
		_, err = o.stderr.Write(append(prefixed, line...))
	}
	return err
}

// droppedInAll returns how many lines were dropped since the start.
func (o *output) droppedInAll() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.dropped
	for _, s := range o.writers() {
		if s != nil {
			n += s.droppedInAll()
		}
	}
	return n
}

// writers are the logWriters that may have dropped lines; some may be nil. The caller holds mu.
func (o *output) writers() [3]*logWriter { return [...]*logWriter{o.stderr, o.file, o.journal} }

// news returns records about lines that were dropped or went to stderr.
func (o *output) news(at time.Time) []slog.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []slog.Record
	say := func(msg string, attrs ...slog.Attr) {
		r := slog.NewRecord(at, slog.LevelWarn, msg, 0)
		r.AddAttrs(attrs...)
		all = append(all, r)
	}
	lost := o.untold
	o.untold = 0
	for _, s := range o.writers() {
		if s != nil {
			lost += s.lost(false)
		}
	}
	if lost > 0 {
		say("log lines were dropped: nobody read them", slog.Int("lines", lost))
	}
	switch {
	case o.trouble != nil && !o.told:
		o.told = true
		say("log_file cannot be written; writing the log to stderr until it can", slog.Any("err", o.trouble))
	case o.trouble == nil && o.diverted > 0:
		say("log_file can be written again; some lines went to stderr", slog.Int("lines", o.diverted))
		o.diverted = 0
	}
	return all
}
