package approvals

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/wholefile"
)

// folder is where the records of a process are.
type folder struct {
	dir  string
	lock *os.File
}

// maxProcesses bounds the processes that serve one folder at a time.
const maxProcesses = 64

// claim finds a folder that no other process uses.
func (s *Store) claim() error {
	for n := range maxProcesses {
		dir := filepath.Join(s.opts.Dir, fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if locked(f) {
			s.dir, s.lock = dir, f
			return nil
		}
		_ = f.Close() // it was only looked at
	}
	return fmt.Errorf("%s: %d processes use it already", s.opts.Dir, maxProcesses)
}

// readLocked reads the records that are there.
func (s *Store) readLocked() {
	wholefile.Sweep(s.dir)
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return // the pattern is valid
	}
	var read []*entry
	for _, path := range files {
		e, err := readRecord(path)
		if err != nil {
			s.opts.Log.Warn("an approval cannot be read, and does not count", "path", path, "err", err)
			continue
		}
		read = append(read, e)
	}
	slices.SortFunc(read, func(a, b *entry) int { return a.Created.Compare(b.Created) })
	now := time.Now()
	for _, e := range read {
		s.all[e.ID] = e
		s.noteChangeLocked(e)
		if e.ended(now) {
			was := e.Phase
			e.expireAt(now)
			s.endLocked(e)
			s.endedLocked(e, was)
			continue
		}
		s.open[e.key()] = e
		s.countLocked(e) // what does not fit any more is kept all the same
		s.watchLocked(e)
	}
}

func readRecord(path string) (*entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e := &entry{changed: make(chan struct{})}
	if err := json.Unmarshal(raw, &e.Record); err != nil {
		return nil, err
	}
	if filepath.Base(path) != e.ID+".json" || !slices.Contains(Phases(), e.Phase) {
		return nil, errors.New("it is not the record of an approval")
	}
	return e, nil
}

// commitLocked makes next of a record, once the disk has it. Others go on meanwhile, and see what the record was: mu is
// not held. If they have ended it by then, it stays ended, on the disk too, and kept is false. The caller holds the turn
// to write.
func (s *Store) commitLocked(e *entry, next Record) (kept bool, err error) {
	e.writing = true
	err = func() error {
		s.mu.Unlock()
		defer s.mu.Lock()
		return s.keep(&next, wholefile.WriteSynced)
	}()
	e.writing = false
	switch {
	case e.overtaken:
		e.overtaken = false
		if s.all[e.ID] == e {
			_ = s.noteLocked(e) // what was written is not so, or is good for no call
		} else {
			s.remove(e)
		}
		return false, err
	case err != nil:
		return false, err
	}
	e.Record = next
	return true, nil
}

// noteLocked writes a record that may be lost with the machine. While the record is committed, that does it.
func (s *Store) noteLocked(e *entry) error {
	if e.writing {
		e.overtaken = true
		return nil
	}
	return s.keep(&e.Record, wholefile.Write)
}

func (s *Store) keep(r *Record, write func(string, []byte) error) error {
	raw, err := json.Marshal(r)
	if err == nil {
		err = write(s.path(r), raw)
	}
	if err != nil {
		return fault.Wrap(fault.NotReady, err, "the approval cannot be kept in the state folder, and no call goes on without that; the operator finds the reason in Orla's log")
	}
	return nil
}

func (s *Store) path(r *Record) string { return filepath.Join(s.dir, r.ID+".json") }

// remove removes the file of a record.
func (s *Store) remove(e *entry) { _ = os.Remove(s.path(&e.Record)) } // at worst it is shown again after the next start

// locked takes the lock of a file, which the kernel gives back when the process ends.
func locked(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
