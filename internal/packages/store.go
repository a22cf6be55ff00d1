// Package packages installs, updates and removes packages, and checks what is installed (SPEC M, RFC 3,
// docs/decisions/0048).
//
//	Session ─► fetch into a stage ─► check ─► Candidate ─► (a person agrees) ─► lock written ─► one rename
//
// It works on files alone: a running Orla notices what has changed. Its invariant: after a kill at any point, what
// served before serves still or the new version serves, and the next Session removes the rest.
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
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
)

// Store is a folder of tools with its lock.
type Store struct {
	Dir     string // absolute
	Lock    string // the path of the orla.lock
	Machine permission.Machine
	Git     origin.Git
	Limits  origin.Limits
	// Waiting is called once if another process has to finish first, with its id; 0 if that is not known. It may be nil.
	Waiting func(process int)
	// Step is called before each step that changes something, with its name. It is for tests, and may be nil. An
	// error ends the work as an error of that step would.
	Step func(name string) error
}

const (
	work       = lockfile.WorkDir // below Dir
	lockName   = lockfile.GuardFile
	ignoreName = ".gitignore" // which ignores all of it
	stageStart = "stage-"
	oldStart   = "old-"
)

// Session may change a Store. There is one at a time, whichever process has it.
type Session struct {
	store Store
	held  []*os.File
	Lock  *lockfile.Lock // as it is on the disk
}

// lockPause is the time between two attempts to get a lock.
const lockPause = 20 * time.Millisecond

// Open waits until no other process changes the Store, removes what a killed one left, and reads the lock.
func (s Store) Open(ctx context.Context) (*Session, error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, work), 0o755); err != nil {
		return nil, err
	}
	// A repository can have a link there, to a folder with other files.
	if info, err := os.Lstat(filepath.Join(s.Dir, work)); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder but a link or a file, and packages are brought there; remove it", filepath.Join(s.Dir, work))
	}
	if ignore := filepath.Join(s.Dir, work, ignoreName); !exists(ignore) {
		if err := os.WriteFile(ignore, []byte("*\n"), 0o644); err != nil { //nolint:gosec // git reads it
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.Lock), 0o755); err != nil {
		return nil, err
	}
	session := &Session{store: s}
	for _, path := range []string{filepath.Dir(s.Lock), filepath.Join(s.Dir, work, lockName)} {
		f, err := s.hold(ctx, path)
		if err != nil {
			session.Close()
			return nil, err
		}
		session.held = append(session.held, f)
	}
	s.sayHolder(strconv.Itoa(os.Getpid()))
	var err error
	if session.Lock, err = lockfile.Read(s.Lock); err != nil {
		session.Close()
		return nil, err
	}
	if err := session.sweep(); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// sayHolder writes who changes the Store, for those who wait. Nothing depends on it, so errors do not matter. A repository can have a
// link there, which is not followed.
func (s Store) sayHolder(text string) {
	f, err := os.OpenFile(filepath.Join(s.Dir, work, lockName), os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
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
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, err
	}
	for waits := false; ; waits = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
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

// Close lets others change the Store.
func (s *Session) Close() {
	if len(s.held) == 2 {
		s.store.sayHolder("")
	}
	for _, f := range s.held {
		_ = f.Close() // it was only locked
	}
	s.held = nil
}

// Limits are those of a package.
func (s *Session) Limits() origin.Limits { return s.store.Limits }

// step announces a step.
func (s *Session) step(name string) error {
	if s.store.Step == nil {
		return nil
	}
	return s.store.Step(name)
}

// sweep removes what a killed process left, and moves back a folder that it had moved away. A stage that cannot be
// removed is left for the next one.
func (s *Session) sweep() error {
	dir := filepath.Join(s.store.Dir, work)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if id, ok := strings.CutPrefix(entry.Name(), oldStart); ok {
			if name, version, ok := strings.Cut(id, "@"); ok {
				target := s.folder(name, version)
				if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) && s.Lock.Find(name, version) != nil {
					_ = os.Rename(path, target) // otherwise orla install puts it there
					continue
				}
			}
		}
		if strings.HasPrefix(entry.Name(), stageStart) || strings.HasPrefix(entry.Name(), oldStart) {
			_ = os.RemoveAll(path) // what cannot be removed is hidden, and does no harm
		}
	}
	for _, name := range s.Lock.Names() {
		_ = os.Remove(filepath.Join(s.store.Dir, name)) // only if it is empty
	}
	return nil
}

// folder is where a version is installed.
func (s *Session) folder(name, version string) string {
	return filepath.Join(s.store.Dir, name, version)
}

// stage makes an empty folder on the same file system.
func (s *Session) stage() (string, error) {
	return os.MkdirTemp(filepath.Join(s.store.Dir, work), stageStart)
}

// write writes a changed lock.
func (s *Session) write(next *lockfile.Lock) error {
	if err := s.step("write the lock"); err != nil {
		return err
	}
	if err := lockfile.Write(s.store.Lock, next); err != nil {
		return fmt.Errorf("the lock cannot be written, so nothing is installed: %w", err)
	}
	s.Lock = next
	return nil
}
