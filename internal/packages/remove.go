package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Remove uninstalls a version, or all versions of a package if version is "". The folder is moved away by one rename
// before its files are removed, and before the lock changes: nothing is ever served without a lock.
func (s *Session) Remove(ctx context.Context, name, version string) (removed []string, err error) {
	err = s.change(ctx, func() error { removed, err = s.remove(name, version); return err })
	return removed, err
}

// remove is Remove while nobody else changes anything.
func (s *Session) remove(name, version string) (removed []string, err error) {
	next := s.Lock.Clone()
	removed = slices.DeleteFunc(s.store.there(name), func(v string) bool { return version != "" && v != version })
	for _, entry := range s.Lock.Versions(name) {
		if version != "" && entry.Version != version {
			continue
		}
		next.Remove(name, entry.Version)
		if !slices.Contains(removed, entry.Version) {
			if dir := s.store.Folder(name, entry.Version); exists(dir) {
				if err := ownFolder(dir, name+" "+entry.Version); err != nil {
					return nil, err
				}
				return nil, fmt.Errorf("%s has no record of an installation (%s) and may be a tool of your own; move it away or remove it yourself first", dir, lockfile.RecordName)
			}
			removed = append(removed, entry.Version)
		}
	}
	if len(removed) == 0 {
		if version != "" {
			name += " " + version
		}
		return nil, fmt.Errorf("%s %w", name, ErrNotInstalled)
	}
	if err := s.isOwn(name); err != nil {
		return nil, err
	}
	if rest := next.Versions(name); len(rest) > 0 && next.Serving(name) == rest[0] {
		next.Use(name, rest[0].Version)
	}
	away := func(v string) string { return filepath.Join(s.store.Dir, work, oldStart+name+"@"+v) }
	back := func() {
		for _, v := range removed {
			_ = os.Rename(away(v), s.store.Folder(name, v)) // the next Session tries it too
		}
	}
	for _, v := range removed {
		err := s.step("move away")
		if err == nil {
			_ = os.RemoveAll(away(v)) // of a process that was killed
			if err = os.Rename(s.store.Folder(name, v), away(v)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			back()
			return nil, err
		}
	}
	err = s.write(next)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		for _, v := range removed {
			_ = os.RemoveAll(away(v)) // makes room, and without its folder nothing is served
		}
		if err = s.write(next); err != nil {
			return nil, fmt.Errorf("its files were removed, and %s still names it; try again with more space: %w", s.store.Lock, err)
		}
	}
	if err != nil {
		back()
		return nil, err
	}
	if len(next.Versions(name)) == 0 {
		_ = s.withoutSecret(name) // there may be none
	}
	removeEmpty(filepath.Join(s.store.Dir, name))
	for _, v := range removed {
		_ = os.RemoveAll(away(v)) // the next Session removes what is left
	}
	return removed, nil
}

// ErrNotInstalled is in the chain of the error if there is no such package.
var ErrNotInstalled = errors.New("is not installed")

// there lists the versions of a package that were installed, whatever the lock says.
func (s Store) there(name string) (versions []string) {
	if !lockfile.ValidName(name) {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(s.Dir, name))
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if _, err := lockfile.ReadRecord(s.Folder(name, entry.Name())); !lockfile.IsMissing(err) && entry.IsDir() {
			versions = append(versions, entry.Name())
		}
	}
	return versions
}

// Use makes an installed version the one that serves.
func (s *Session) Use(ctx context.Context, name, version string) error {
	return s.change(ctx, func() error {
		entry := s.Lock.Find(name, version)
		switch {
		case entry == nil:
			return fmt.Errorf("%s %s %w", name, version, ErrNotInstalled)
		case !s.IsThere(*entry):
			return fmt.Errorf("%s %s is in the lock, but its folder is missing; orla install restores it", name, version)
		}
		next := s.Lock.Clone()
		next.Use(name, version)
		return s.write(next)
	})
}

// Verified is what Verify found out about one version.
type Verified struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Problem says what differs from the lock; "" for nothing.
	Problem string `json:"problem,omitempty"`
}

// Verify compares what is installed with the lock (SPEC M5).
func (s Store) Verify(ctx context.Context) (list []Verified, err error) {
	lock, err := lockfile.Read(s.Lock)
	if err != nil {
		return nil, err
	}
	for _, entry := range lock.Packages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		problem := s.differs(ctx, entry)
		if problem == "" {
			problem = s.grantsMore(entry)
		}
		list = append(list, Verified{entry.Name, entry.Version, problem})
	}
	for _, stray := range s.strays(lock) {
		list = append(list, Verified{stray[0], stray[1], "it was installed, and " + s.Lock + " does not have it"})
	}
	return list, nil
}

// grantsMore says what the lock grants an installed package that it does not ask for; "" for nothing.
func (s Store) grantsMore(entry lockfile.Package) string {
	dir := s.Folder(entry.Name, entry.Version)
	var texts []string
	if entry.Source.Kind == lockfile.Server && exists(filepath.Join(dir, ServerFile)) {
		c, err := checkServer(dir, entry.Version, entry.Source.URL)
		if err != nil {
			return "what it asks for cannot be read: " + err.Error()
		}
		texts = permission.Texts(c.Asked)
	} else {
		about, err := toolfile.ReadAbout(dir, toolfile.ManifestFile)
		if err != nil {
			return "what it asks for cannot be read: " + err.Error()
		}
		t, _, _, err := toolfile.ReadPackage(dir, toolfile.ManifestFile, toolfile.ManifestFile, nil)
		if err != nil {
			return "what it asks for cannot be read: " + err.Error()
		}
		secrets, err := lockfile.SecretsOf(t)
		if err != nil {
			return err.Error()
		}
		texts = append(slices.Clone(about.Permissions), permission.Texts(secrets)...)
	}
	asked, err := permission.ParseAll(texts)
	if err != nil {
		return "what it asks for cannot be read: " + err.Error()
	}
	for _, p := range slices.Clone(asked) {
		if real, err := s.Machine.Resolve(p); err == nil {
			asked = append(asked, real) // as it was granted
		}
	}
	for _, p := range granted(&entry) {
		if !slices.Contains(asked, p) {
			return "the lock grants " + p.String() + ", which it does not ask for; packages in orla.yaml is for what you add"
		}
	}
	return ""
}

func (s Store) differs(ctx context.Context, entry lockfile.Package) string {
	dir := s.Folder(entry.Name, entry.Version)
	record, err := s.record(entry.Name, entry.Version)
	switch {
	case !exists(dir):
		return "it is not installed"
	case err != nil:
		return "the record of its installation cannot be read: " + err.Error()
	case !record.Matches(&entry):
		return "the record in its folder is about another package, version or digest"
	}
	got, err := origin.Digest(ctx, dir)
	switch {
	case err != nil:
		return "its files cannot be read: " + err.Error()
	case got != entry.Digest:
		return "its files have changed: their digest is " + got + ", and that of the lock " + entry.Digest
	}
	return ""
}

// strays lists names and versions of folders that were installed and are not in the lock.
func (s Store) strays(lock *lockfile.Lock) (list [][2]string) {
	names, _ := os.ReadDir(s.Dir) // none if it is not there
	for _, name := range names {
		for _, version := range s.there(name.Name()) {
			if lock.Find(name.Name(), version) == nil {
				list = append(list, [2]string{name.Name(), version})
			}
		}
	}
	return list
}
