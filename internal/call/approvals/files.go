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

// writeLocked writes a record to the disk.
func (s *Store) writeLocked(e *entry) error { return s.keepLocked(e, wholefile.WriteSynced) }

// noteLocked is writeLocked for what may be lost with the machine.
func (s *Store) noteLocked(e *entry) error { return s.keepLocked(e, wholefile.Write) }

func (s *Store) keepLocked(e *entry, write func(string, []byte) error) error {
	raw, err := json.Marshal(&e.Record)
	if err == nil {
		err = write(s.path(e), raw)
	}
	if err != nil {
		return fault.Wrap(fault.NotReady, err, "the approval cannot be kept in the state folder, and no call goes on without that; the operator finds the reason in Orla's log")
	}
	return nil
}

func (s *Store) path(e *entry) string { return filepath.Join(s.dir, e.ID+".json") }

// locked takes the lock of a file, which the kernel gives back when the process ends.
func locked(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
