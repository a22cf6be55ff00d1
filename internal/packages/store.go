// Package packages installs, updates and removes packages, and checks what is installed (SPEC M, RFC 3,
// docs/decisions/0048).
//
//	Session ─► fetch into a stage ─► check ─► Candidate ─► (a person agrees) ─► check again ─► lock written ─► one rename
//
// It works on files alone: a running Orla notices what has changed. Its invariant: after a kill at any point, what
// served before serves still or the new version serves, and the next Session removes the rest. One process changes a
// Store at a time, from the second check on.
package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
)

// Store is a folder of tools with its lock.
type Store struct {
	Dir     string // absolute
	Lock    string // the path of the orla.lock
	Machine permission.Machine
	Git     origin.Git // its limits are those of every package
	// Waiting is called once for each change that another process has to finish first, with its id; 0 if that is not known. It may be nil.
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

// Session prepares changes of a Store, and makes them. Only while it makes one do others wait (SPEC S2): whatever it
// fetches, and whatever a person is asked, holds up nobody.
type Session struct {
	store Store
	Lock  *lockfile.Lock // as it was on the disk at the last change
}

// Open removes what a killed process left, and reads the lock.
func (s Store) Open(ctx context.Context) (*Session, error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, work), 0o755); err != nil {
		return nil, err
	}
	if err := s.isFolder(); err != nil {
		return nil, err
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
	return session, session.change(ctx, func() error { return nil })
}

// Limits are those of a package.
func (s *Session) Limits() origin.Limits { return s.store.Git.Limits }

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
				target := s.store.Folder(name, version)
				if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) && s.Lock.Find(name, version) != nil && s.isOwn(name) == nil {
					_ = os.Rename(path, target) // otherwise orla install puts it there
					continue
				}
			}
		}
		switch {
		case strings.HasPrefix(entry.Name(), stageStart):
			removeLeft(path)
		case strings.HasPrefix(entry.Name(), oldStart):
			_ = os.RemoveAll(path) // what cannot be removed is hidden, and does no harm
		}
	}
	for _, name := range s.Lock.Names() {
		removeEmpty(filepath.Join(s.store.Dir, name))
	}
	return nil
}

// removeEmpty removes a folder if nothing is in it. The name may come from a lock that somebody else wrote: a file or a link of
// that name stays.
func removeEmpty(dir string) { _ = syscall.Rmdir(dir) }

// isOwn returns an error if the folder of a package is something else, such as a link: a repository can have one of that
// name, and what it leads to is not Orla's to change.
func (s *Session) isOwn(name string) error {
	return ownFolder(filepath.Join(s.store.Dir, name), "package "+name)
}

// ownFolder returns an error if something else than a folder is where what belongs: no link is followed there, or removed.
func ownFolder(dir, what string) error {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder but a link or a file, and %s belongs there; rename or remove it first", dir, what)
	}
	return nil
}

// record reads the record of a version. A link in the place of its folder has none: nothing is served from there.
func (s Store) record(name, version string) (lockfile.Record, error) {
	dir := s.Folder(name, version)
	if err := ownFolder(dir, name+" "+version); err != nil {
		return lockfile.Record{}, err
	}
	return lockfile.ReadRecord(dir)
}

// isFolder returns an error if packages are not made in a folder: a repository can have a link there, to a folder with
// other files.
func (s Store) isFolder() error {
	info, err := os.Lstat(filepath.Join(s.Dir, work))
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder but a link or a file, and packages are brought there; remove it", filepath.Join(s.Dir, work))
	}
	return err
}

// Folder is where a version is installed.
func (s Store) Folder(name, version string) string { return filepath.Join(s.Dir, name, version) }

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
