// Package envlock locks files among processes: for one alone, or shared.
package envlock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

// errLocked says that another process has a lock.
var errLocked = errors.New("another Orla has the lock")

// Try locks a file, for this process alone or shared. It makes the file if it is missing. Closing
// the file ends the lock.
func Try(path string, alone bool) (*os.File, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := change(f, how|syscall.LOCK_NB); err != nil {
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

// change changes the lock of a file.
func change(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// End ends a lock at once. Closing the file is not enough: a process that is being started has the file too, until it
// executes its program.
func End(f *os.File) error { return errors.Join(change(f, syscall.LOCK_UN), f.Close()) }

// Share lets others have a lock too that was for this process alone.
func Share(f *os.File) error { return change(f, syscall.LOCK_SH) }

// Pause is the time between two attempts to get a lock.
const Pause = 100 * time.Millisecond

// Await waits for a lock for this process alone. It returns no lock when built reports true: whoever uses
// the environment by now keeps its lock.
func Await(ctx context.Context, path string, built func() bool, say func(string)) (*os.File, error) {
	for {
		if built() {
			return nil, nil //nolint:nilnil // there is nothing to do
		}
		f, err := Try(path, true)
		if err == nil && built() {
			return nil, f.Close()
		}
		if !errors.Is(err, errLocked) {
			return f, err
		}
		say("another Orla installs the same dependencies")
		if !pace.Sleep(ctx, Pause) {
			return nil, context.Cause(ctx)
		}
	}
}
