package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/packages/lockfile"
)

const (
	// settleTime bounds the waiting for an install that replaces a version: it writes the lock, and then moves the folder.
	settleTime  = 5 * time.Second
	settlePause = 10 * time.Millisecond
)

// doubt is a version whose folder and lock do not go together.
type doubt struct {
	in            *toolsIn
	name, version string
}

// isOver reports whether they go together now.
func (d doubt) isOver() bool {
	lock, err := lockfile.Read(d.in.file)
	if err != nil {
		return false
	}
	dir := filepath.Join(d.in.dir, d.name, d.version)
	record, err := lockfile.ReadRecord(dir)
	if entry := lock.Find(d.name, d.version); entry != nil {
		return err == nil && record.Matches(entry)
	}
	_, err = os.Lstat(dir)
	return os.IsNotExist(err)
}

// settle waits while somebody installs, until the doubts are over. It reports whether it is worth looking again: a
// capsule is not to be stopped because its version is being replaced.
func (p *packages) settle(stopped func() error) bool {
	began := time.Now()
	for p.isInDoubt() {
		if time.Since(began) > settleTime || stopped != nil && stopped() != nil {
			return false
		}
		if !slices.ContainsFunc(p.doubts, func(d doubt) bool { return lockfile.IsBusy(d.in.dir) }) {
			return !p.isInDoubt() // it ended in between
		}
		<-time.After(settlePause)
	}
	return len(p.doubts) > 0
}

// isInDoubt reports whether a doubt is not over.
func (p *packages) isInDoubt() bool {
	return slices.ContainsFunc(p.doubts, func(d doubt) bool { return !d.isOver() })
}
