package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages/lockfile"
)

// lockPause is the time between two attempts to get a lock.
const lockPause = 20 * time.Millisecond

// change waits until no other process changes the Store, removes what a killed one left, reads the lock, and calls what.
func (s *Session) change(ctx context.Context, what func() error) error {
	if err := s.store.isFolder(); err != nil {
		return err
	}
	for _, path := range []string{filepath.Dir(s.store.Lock), filepath.Join(s.store.Dir, work, lockName)} {
		f, err := s.store.hold(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only locked
	}
	s.store.sayHolder(strconv.Itoa(os.Getpid()))
	defer s.store.sayHolder("")
	var err error
	if s.Lock, err = lockfile.Read(s.store.Lock); err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return err
	}
	return what()
}

// sayHolder writes who changes the Store, for those who wait. Nothing depends on it, so errors do not matter. A
// repository can have a link there, which is not followed.
func (s Store) sayHolder(text string) {
	f, err := os.OpenFile(filepath.Join(s.Dir, work, lockName), os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// holder is the process that changes the Store; 0 if that is not known.
func (s Store) holder() int {
	text, _ := regularfile.Read(filepath.Join(s.Dir, work, lockName), 100) // it is only said
	process, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return max(process, 0)
}

// hold locks a folder, or a file that it makes.
func (s Store) hold(ctx context.Context, path string) (*os.File, error) {
	open := regularfile.OpenLock // a repository can have a link or a FIFO there
	if path == filepath.Dir(s.Lock) {
		open = os.Open
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	for waits := false; ; waits = true {
		err := alone(f)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("%s cannot be locked: %w", path, err), f.Close())
		case !waits && s.Waiting != nil:
			s.Waiting(s.holder())
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}

// alone locks a file or a folder for this process, if no other has it.
func alone(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// stage is a folder where a package is made, which its process has locked, so that no other takes it for one that a
// killed process left.
type stage struct {
	dir  string
	held *os.File
}

// stageTries bounds the attempts to make a stage: between its making and its lock, another process may remove it.
const stageTries = 100

// stage makes an empty folder on the file system of the Store.
func (s *Session) stage() (stage, error) {
	for range stageTries {
		dir, err := os.MkdirTemp(filepath.Join(s.store.Dir, work), stageStart)
		if err != nil {
			return stage{}, err
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return stage{}, err
		}
		if alone(f) == nil {
			mine, err := f.Stat()
			if there, no := os.Lstat(dir); err == nil && no == nil && os.SameFile(mine, there) {
				return stage{dir, f}, nil
			}
		}
		_ = f.Close() // it was only locked
	}
	return stage{}, fmt.Errorf("%s: another process removes each folder that is made there", filepath.Join(s.store.Dir, work))
}

// holdAgain locks what is in a stage now, while nobody else changes the Store. If that fails, another process may remove it.
func (s *stage) holdAgain() {
	f, err := os.Open(s.dir)
	if err != nil {
		return
	}
	_ = alone(f)
	_ = s.held.Close() // it was only locked
	s.held = f
}

// removeLeft removes a stage whose process is not there any more, and anything else that has the name of one. What cannot
// be removed is hidden, and does no harm.
func removeLeft(path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err == nil {
		defer func() { _ = f.Close() }() // locked until it is removed: its process may be about to lock it
		if errors.Is(alone(f), syscall.EWOULDBLOCK) {
			return
		}
	}
	_ = os.RemoveAll(path)
}

// remove removes a stage, if it was not moved, and its lock.
func (s *stage) remove() {
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // the next Session removes what is left
		_ = s.held.Close()      // it was only locked
	}
	*s = stage{}
}
