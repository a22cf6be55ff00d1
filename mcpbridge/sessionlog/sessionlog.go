// Package sessionlog keeps on the disk what the next process needs to go on with the sessions of this one
// (SPEC Q2, docs/decisions/0050).
package sessionlog

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// NoteEvery is how often the use of a session is noted: so much longer than its timeout it may come back.
	NoteEvery = 5 * time.Minute
	// maxRecord bounds a session's first line, in bytes. A session with a longer one ends with its process.
	maxRecord = 8 << 10
	// slack is how many bytes the changes may have in addition to as many as the sessions before them.
	slack = 256 << 10
	// again is how long after a failure it is tried again to write.
	again = time.Second
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

// Setter keeps what the client of a session sets after its begin.
type Setter interface {
	SetLevel(id, level string)
	Follow(id, uri string)
	Unfollow(id, uri string)
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

// Log is the files of the sessions of a process: one with all sessions at one moment, and one, or for a moment
// two, with the changes since then. A nil Log keeps nothing. Its methods may be called from any goroutine. They do
// not fail: a session that cannot be kept ends with its process, and the log says so.
type Log struct {
	path string
	log  *slog.Logger
	lock *os.File

	writing sync.WaitGroup // a gather

	mu        sync.Mutex // guards the fields that follow
	changes   changes
	needed    int64 // the size of the file with all sessions
	gathering bool
	failed    time.Time           // when a line could not be written last; zero if the last one could
	ended     map[digest]struct{} // sessions whose end could not be written
	earlier   map[digest]*Record
}

// changes is the file that lines are added to.
type changes struct {
	file   *os.File // nil after Close
	number int      // in its name
	size   int64
	torn   bool // the last line may be a part of one
}

// Open reads the sessions of the process before, and keeps those of this one. Those that are not used for
// longer than timeout are over. Of the others at most most are kept: the caller with the most loses those that it has used
// longest ago. The error says why none can be kept; usually another process uses the file.
func Open(path string, timeout time.Duration, most int, log *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = lock.Close() // it was only looked at
		return nil, errors.New("another Orla that serves the same folder of tools keeps its sessions there")
	}
	l := &Log{path: path, log: log, lock: lock, ended: map[digest]struct{}{}}
	if err := l.begin(timeout, most); err != nil {
		_ = lock.Close() // err is more useful
		return nil, err
	}
	return l, nil
}

// begin reads what is there, and makes one file of it.
func (l *Log) begin(timeout time.Duration, most int) error {
	numbers, err := l.changesThere()
	if err != nil {
		return err
	}
	all := map[digest]*Record{}
	if err := readInto(all, l.path); err != nil {
		return err
	}
	for _, n := range numbers {
		l.changes.number = n
		if err := readInto(all, l.changesPath(n)); err != nil {
			return err
		}
	}
	drop(all, timeout, most)
	if l.needed, err = write(l.path, all); err != nil {
		return err
	}
	for _, n := range numbers {
		if err := os.Remove(l.changesPath(n)); err != nil {
			return err
		}
	}
	l.earlier = all
	return l.nextLocked()
}

// drop removes the sessions that are over, and all but most of the others.
func drop(all map[digest]*Record, timeout time.Duration, most int) {
	maps.DeleteFunc(all, func(_ digest, r *Record) bool { return time.Since(r.Used) > timeout+NoteEvery })
	over := len(all) - most
	if over <= 0 {
		return
	}
	for _, id := range excess(all, over) {
		delete(all, id)
	}
}

// nextLocked begins a new file of changes.
func (l *Log) nextLocked() error {
	file, err := os.OpenFile(l.changesPath(l.changes.number+1), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	l.closeLocked()
	l.changes.number++
	l.changes.file, l.changes.size, l.changes.torn = file, 0, false
	return nil
}

// add writes a change.
func (l *Log) add(c line) {
	if l == nil {
		return
	}
	text, err := rawjson.Line(c)
	if err != nil || c.Begin != nil && len(text) > maxRecord {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes.file == nil {
		return
	}
	if c.End && !l.failed.IsZero() {
		l.ended[c.ID] = struct{}{}
	}
	if !l.failed.IsZero() && !l.recoverLocked() {
		return
	}
	if err := l.writeLocked(text); err != nil {
		if c.End {
			l.ended[c.ID] = struct{}{}
		}
		l.log.Warn("sessions cannot be kept, and those that begin now end with this process", "path", l.path, "err", err)
		l.failed = time.Now()
		return
	}
	if l.changes.size > l.needed+slack && !l.gathering {
		l.gatherLocked()
	}
}

// recoverLocked tries, a while after a failure, to write which sessions have ended since. It reports whether changes
// can be written again.
func (l *Log) recoverLocked() bool {
	if time.Since(l.failed) < again {
		return false
	}
	for id := range l.ended {
		if l.writeLocked(fmt.Appendf(nil, `{"id":%q,"end":true}`+"\n", id)) != nil {
			l.failed = time.Now()
			return false
		}
		delete(l.ended, id)
	}
	l.failed = time.Time{}
	l.log.Info("sessions are kept again", "path", l.path)
	return true
}

func (l *Log) writeLocked(text []byte) error {
	if l.changes.torn {
		text = append([]byte("\n"), text...)
	}
	n, err := l.changes.file.Write(text)
	l.changes.size += int64(n)
	l.changes.torn = err != nil
	return err
}

// gatherLocked has all sessions written as one file, while changes go to another one: whoever adds a change does not wait.
func (l *Log) gatherLocked() {
	before := l.changes.number
	if err := l.nextLocked(); err != nil {
		l.log.Warn("the file of sessions cannot be written again", "path", l.path, "err", err)
		l.needed = l.changes.size // try again when there is as much more
		return
	}
	l.gathering = true
	l.writing.Go(func() {
		defer recovered.To(l.log, "gather the sessions in one file", nil)
		size, err := l.gather(before)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gathering = false
		if err != nil { // the next start reads all files
			l.log.Warn("the file of sessions cannot be written again", "path", l.path, "err", err)
			size = l.needed + l.changes.size
		}
		l.needed = size
	})
}

// gather makes one file of that with all sessions and those with the changes up to a number.
func (l *Log) gather(last int) (size int64, err error) {
	numbers, err := l.changesThere()
	if err != nil {
		return 0, err
	}
	all := map[digest]*Record{}
	if err := readInto(all, l.path); err != nil {
		return 0, err
	}
	for _, n := range numbers {
		if n <= last {
			err = errors.Join(err, readInto(all, l.changesPath(n)))
		}
	}
	if err != nil {
		return 0, err
	}
	if size, err = write(l.path, all); err != nil {
		return 0, err
	}
	for _, n := range numbers {
		if n <= last {
			err = errors.Join(err, os.Remove(l.changesPath(n)))
		}
	}
	return size, err
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

// Close syncs the files. Nothing is kept any more. Sessions that have ended and whose end cannot be written take all others
// with them.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.writing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes.file == nil {
		return
	}
	l.failed = time.Time{}
	for id := range l.ended {
		if err := l.writeLocked(fmt.Appendf(nil, `{"id":%q,"end":true}`+"\n", id)); err != nil {
			l.log.Warn("sessions are not kept: cannot store which ones have ended", "path", l.path, "err", err)
			_ = errors.Join(os.Remove(l.path), os.Remove(l.changesPath(l.changes.number))) // there is nothing else to try
			break
		}
	}
	_ = l.changes.file.Sync() // the sessions end, if the machine does
	l.closeLocked()
	_ = l.lock.Close() // as above
}

// closeLocked closes the file of changes.
func (l *Log) closeLocked() {
	if l.changes.file != nil {
		_ = l.changes.file.Close() // what was written is in the file
		l.changes.file = nil
	}
}
