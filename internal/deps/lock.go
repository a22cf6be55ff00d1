package deps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

// lockSuffix ends the name of the file that is locked while an environment is built, used or removed.
const lockSuffix = ".lock"

func (s *Store) lockFile(digest string) string {
	return filepath.Join(s.opts.Dir, digest+lockSuffix)
}

// errLocked says that another process has a lock.
var errLocked = errors.New("another Orla has the lock")

// tryLock locks a file, for this process alone or shared. It makes the file if it is missing. Closing
// the file ends the lock.
func tryLock(path string, alone bool) (*os.File, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|syscall.LOCK_NB); err != nil {
			_ = f.Close() // it was only locked
			if errors.Is(err, syscall.EWOULDBLOCK) {
				err = errLocked
			}
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		_ = f.Close() // it was removed in the meantime: the lock means nothing
	}
}

// flock changes the lock of a file.
func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// lockPause is the time between two attempts to get a lock.
const lockPause = 100 * time.Millisecond

// lockTries bounds the attempts to get a lock that others have for a moment alone.
const lockTries = 50

// awaitLock waits for a lock for this process alone. It returns no lock when built reports true: whoever uses
// the environment by now keeps its lock.
func awaitLock(ctx context.Context, path string, built func() bool, say func(string)) (*os.File, error) {
	for {
		if built() {
			return nil, nil //nolint:nilnil // there is nothing to do
		}
		f, err := tryLock(path, true)
		if err == nil && built() {
			return nil, f.Close()
		}
		if !errors.Is(err, errLocked) {
			return f, err
		}
		say("another Orla installs the same dependencies")
		if !pace.Sleep(ctx, lockPause) {
			return nil, context.Cause(ctx)
		}
	}
}
