package approvals

import (
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

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// folder is where the records of a process are.
type folder struct {
	dir  string
	lock *os.File
	mu   *sync.Mutex // of the Store
	log  *slog.Logger

	synced func(path string, data []byte) error // wholefile.WriteSynced, but in tests that look at the Store meanwhile
}

// maxProcesses bounds the processes that serve one folder at a time.
const maxProcesses = 64

// claim finds a folder that no other process uses.
func (s *Store) claim() (*folder, error) {
	of := s.opts.Dir
	for n := range maxProcesses {
		dir := filepath.Join(of, fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		f, err := regularfile.OpenLock(filepath.Join(dir, "lock"))
		if err != nil {
			return nil, err
		}
		if locked(f) {
			return &folder{dir, f, &s.mu, s.opts.Log, wholefile.WriteSynced}, nil
		}
		_ = f.Close() // it was only looked at
	}
	return nil, fmt.Errorf("%s: %d processes use it already", of, maxProcesses)
}

// readLocked reads the records that are there.
func (s *Store) readLocked(f *folder) {
	wholefile.Sweep(f.dir)
	files, err := filepath.Glob(filepath.Join(f.dir, "*.json"))
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
	now := s.now()
	for _, e := range read {
		s.all[e.ID] = e
		s.noteChangeLocked(e)
		if later := e.later(now); later || e.ended(now) {
			was := e.Phase
			e.expireAt(now)
			if later && e.Phase == was && was != Denied && e.Used.IsZero() {
				e.Phase, e.Reason = Expired, "the clock was set back, and nobody knows how long it has waited"
			}
			s.endLocked(e)
			s.endedLocked(e, was)
			continue
		}
		s.open[e.key()] = e
		s.countLocked(e) // what does not fit any more is kept all the same
		s.watchLocked(e)
	}
}

// maxRecordFile is more than a record can have, in bytes.
const maxRecordFile = 16 << 20

func readRecord(path string) (*entry, error) {
	raw, err := regularfile.ReadOwn(path, maxRecordFile)
	if err != nil {
		return nil, err
	}
	e := &entry{changed: make(chan struct{})}
	if err := json.Unmarshal(raw, &e.Record); err != nil {
		return nil, err
	}
	if filepath.Base(path) != e.ID+".json" || !slices.Contains(phases(), e.Phase) {
		return nil, errors.New("it is not the record of an approval")
	}
	return e, nil
}

// put implements keeper.
func (f *folder) put(_ *entry, next *Record) error {
	f.mu.Unlock()
	defer f.mu.Lock()
	return f.keep(next, f.synced)
}

// note implements keeper.
func (f *folder) note(e *entry, _ *Event) (told bool) {
	if err := f.keep(&e.Record, wholefile.Write); err != nil {
		f.log.Debug("the end of an approval is not kept", "approval", e.ID, "err", err)
	}
	return false
}

func (f *folder) keep(r *Record, write func(string, []byte) error) error {
	raw, err := rawjson.Line(r)
	if err == nil {
		err = write(f.path(r), raw)
	}
	if err != nil {
		return fault.Wrap(fault.NotReady, err, "the approval cannot be kept in the state folder, and no call goes on without that; the operator finds the reason in Orla's log")
	}
	return nil
}

func (f *folder) path(r *Record) string { return filepath.Join(f.dir, r.ID+".json") }

// remove implements keeper.
func (f *folder) remove(e *entry) { _ = os.Remove(f.path(&e.Record)) } // at worst it is shown again after the next start

// later implements keeper: what the disk does not take now is given up.
func (f *folder) later(func() bool) {}

// self implements keeper.
func (f *folder) self() string { return "" }

// now implements keeper.
func (f *folder) now() time.Time { return time.Now() }

// stop implements keeper.
func (f *folder) stop() {}

// close implements keeper.
func (f *folder) close() { _ = f.lock.Close() } // nothing was written to it

// locked takes the lock of a file, which the kernel gives back when the process ends.
func locked(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
