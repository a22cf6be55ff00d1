// Package sessionlog keeps on the disk what the next process needs to go on with the sessions of this one
// (SPEC Q2, docs/decisions/0050).
package sessionlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	// NoteEvery is how often the use of a session is noted: so much longer than its timeout it may come back.
	NoteEvery = 5 * time.Minute
	// maxRecord bounds a session's first line, in bytes. A session with a longer one ends with its process.
	maxRecord = 8 << 10
	// slack is how many bytes the file may have in addition to twice those that are needed.
	slack = 256 << 10
)

// Record is what is kept of a session.
type Record struct {
	Caller  string          `json:"caller,omitempty"`  // who began it; "" without authentication
	Access  string          `json:"access,omitempty"`  // AccessDigest of what its caller had access by
	Says    json.RawMessage `json:"says"`              // the params of its initialize, as far as Orla needs them
	Level   string          `json:"level,omitempty"`   // the least level of log messages that its client wants
	Follows map[string]bool `json:"follows,omitempty"` // the URIs of the resources that it follows
	Used    time.Time       `json:"used"`              // it was used then, and up to NoteEvery later
}

// digest names a session. The file does not have its id, with which anybody could use it.
type digest string

func digestOf(id string) digest {
	sum := sha256.Sum256([]byte(id))
	return digest(fmt.Sprintf("%x", sum[:16]))
}

// AccessDigest returns a digest of what gives a caller access, which the file may have.
func AccessDigest(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%x", sum[:8])
}

// line is a change of a session, or its begin.
type line struct {
	ID       digest     `json:"id"`
	Begin    *Record    `json:"begin,omitempty"`
	Level    string     `json:"level,omitempty"`
	Follow   string     `json:"follow,omitempty"`
	Unfollow string     `json:"unfollow,omitempty"`
	Used     *time.Time `json:"used,omitempty"`
	End      bool       `json:"end,omitempty"`
}

// Log is the file of the sessions of a process. A nil Log keeps nothing. Its methods may be called from any
// goroutine. They do not fail: a session that cannot be kept ends with its process, and the log says so once.
type Log struct {
	path string
	log  *slog.Logger
	lock *os.File

	mu      sync.Mutex // guards the fields that follow
	file    *os.File   // nil after a failure, and after Close
	size    int64      // of the file
	needed  int64      // its size when it was written last as a whole
	earlier map[digest]*Record
}

// Open reads the sessions of the process before, and keeps those of this one. Those that are not used for
// longer than timeout are over, and of the others at most most are kept, the ones used last. The error says why none
// can be kept; usually another process uses the file.
func Open(path string, timeout time.Duration, most int, log *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = lock.Close() // it was only looked at
		return nil, errors.New("another Orla that serves the same folder of tools keeps its sessions there")
	}
	l := &Log{path: path, log: log, lock: lock, earlier: map[digest]*Record{}}
	l.earlier, err = read(path)
	if err == nil {
		drop(l.earlier, timeout, most)
		err = l.rewriteLocked(l.earlier)
	}
	if err != nil {
		_ = lock.Close() // err is more useful
		return nil, err
	}
	return l, nil
}

// drop removes the sessions that are over, and all but most of the others.
func drop(all map[digest]*Record, timeout time.Duration, most int) {
	var used []time.Time
	for id, r := range all {
		if time.Since(r.Used) > timeout+NoteEvery {
			delete(all, id)
			continue
		}
		used = append(used, r.Used)
	}
	if len(used) <= most {
		return
	}
	slices.SortFunc(used, func(a, b time.Time) int { return b.Compare(a) })
	for id, r := range all {
		if r.Used.Before(used[most]) || len(all) > most && r.Used.Equal(used[most]) {
			delete(all, id)
		}
	}
}

// read returns the sessions in a file. A line that cannot be read is left out: the process may have been
// killed while it wrote it.
func read(path string) (map[digest]*Record, error) {
	all := map[digest]*Record{}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for text := range bytes.Lines(raw) {
		var one line
		if json.Unmarshal(text, &one) == nil {
			one.apply(all)
		}
	}
	return all, nil
}

// apply makes the change.
func (c *line) apply(all map[digest]*Record) {
	if c.Begin != nil {
		all[c.ID] = c.Begin
		return
	}
	r := all[c.ID]
	switch {
	case r == nil:
	case c.End:
		delete(all, c.ID)
	case c.Level != "":
		r.Level = c.Level
	case c.Follow != "":
		if r.Follows == nil {
			r.Follows = map[string]bool{}
		}
		r.Follows[c.Follow] = true
	case c.Unfollow != "":
		delete(r.Follows, c.Unfollow)
	case c.Used != nil:
		r.Used = *c.Used
	}
}

// rewriteLocked replaces the file by one with these sessions alone.
func (l *Log) rewriteLocked(all map[digest]*Record) error {
	var raw []byte
	for id, r := range all {
		text, err := json.Marshal(line{ID: id, Begin: r})
		if err != nil { // strings, and JSON that was read
			return err
		}
		raw = append(append(raw, text...), '\n')
	}
	if err := wholefile.Write(l.path, raw); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close() // nobody needs it any more
	}
	l.file, l.size, l.needed = file, int64(len(raw)), int64(len(raw))
	return nil
}

// add writes a change.
func (l *Log) add(c line) {
	if l == nil {
		return
	}
	text, err := json.Marshal(c)
	if err != nil || len(text) > maxRecord {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	n, err := l.file.Write(append(text, '\n'))
	l.size += int64(n)
	if err == nil && l.size > 2*l.needed+slack {
		var all map[digest]*Record
		if all, err = read(l.path); err == nil {
			err = l.rewriteLocked(all)
		}
	}
	if err != nil {
		l.log.Warn("sessions cannot be kept any more, and end with this process", "path", l.path, "err", err)
		_ = l.file.Close() // err is more useful
		l.file = nil
	}
}

// Begun keeps a new session.
func (l *Log) Begun(id string, r *Record) {
	r.Used = time.Now()
	l.add(line{ID: digestOf(id), Begin: r})
}

// SetLevel keeps the level of log messages that a session wants.
func (l *Log) SetLevel(id, level string) { l.add(line{ID: digestOf(id), Level: level}) }

// Follow keeps that a session follows a resource.
func (l *Log) Follow(id, uri string) { l.add(line{ID: digestOf(id), Follow: uri}) }

// Unfollow keeps that it does not follow it any more.
func (l *Log) Unfollow(id, uri string) { l.add(line{ID: digestOf(id), Unfollow: uri}) }

// Used keeps that a session is used now.
func (l *Log) Used(id string) {
	now := time.Now()
	l.add(line{ID: digestOf(id), Used: &now})
}

// Ended forgets a session.
func (l *Log) Ended(id string) {
	if l == nil {
		return
	}
	d := digestOf(id)
	l.mu.Lock()
	delete(l.earlier, d)
	l.mu.Unlock()
	l.add(line{ID: d, End: true})
}

// Earlier returns a session of an earlier process that has not been resumed; nil if there is none. The caller
// must not change it.
func (l *Log) Earlier(id string) *Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.earlier) == 0 { // usually
		return nil
	}
	return l.earlier[digestOf(id)]
}

// Resumed says that a session of an earlier process is one of this process now.
func (l *Log) Resumed(id string) {
	l.mu.Lock()
	delete(l.earlier, digestOf(id))
	l.mu.Unlock()
	l.Used(id)
}

// Forget forgets the earlier sessions for which over reports true.
func (l *Log) Forget(over func(*Record) bool) {
	if l == nil {
		return
	}
	var gone []digest
	l.mu.Lock()
	for id, r := range l.earlier {
		if over(r) {
			delete(l.earlier, id)
			gone = append(gone, id)
		}
	}
	l.mu.Unlock()
	for _, id := range gone {
		l.add(line{ID: id, End: true})
	}
}

// Close syncs the file. Nothing is kept any more.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = errors.Join(l.file.Sync(), l.file.Close()) // the sessions end, if the machine does
		l.file = nil
	}
	_ = l.lock.Close() // as above
}
