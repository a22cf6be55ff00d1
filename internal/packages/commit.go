package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
)

// Consent is what a person agreed to.
type Consent struct {
	// Permissions are all that the package asks for and was not granted before.
	Permissions bool
	// Unenforced are those that Orla cannot hold the package to.
	Unenforced bool
}

// ErrConsent is in the chain of the error if something was not agreed to.
var ErrConsent = errors.New("it was not agreed to")

// ErrChanged is in the chain of the error if something was changed between the preparation and the change.
var ErrChanged = errors.New("another orla has changed it in the meantime; try again")

// Install installs a Candidate, if what is installed is still what it was compared with: the lock is written, and then
// the stage becomes the folder of the version by one rename. On an error everything is as it was. A folder of the same version that
// it has replaced is in the stage then, for TakeBack, until Discard.
func (c *Candidate) Install(ctx context.Context, agreed Consent) (err error) {
	defer func() {
		if err != nil || !c.undo.replaced {
			c.Discard()
		}
	}()
	switch {
	case len(c.More) > 0 && !agreed.Permissions:
		return fmt.Errorf("%w that %s gets the permissions that it asks for", ErrConsent, c.Entry.Name)
	case len(c.Unenforced) > 0 && !agreed.Unenforced:
		return fmt.Errorf("%w that %s gets permissions that cannot be enforced", ErrConsent, c.Entry.Name)
	}
	if !c.Same {
		if err := c.seal(); err != nil {
			return err
		}
	}
	return c.session.change(ctx, func() error { return c.put(ctx) })
}

// put is Install while nobody else changes anything.
func (c *Candidate) put(ctx context.Context) error {
	sealed := !c.Same
	if err := c.compareAgain(ctx); err != nil {
		return err
	}
	all := slices.Concat(c.Entry.Unenforced, permission.Texts(c.Unenforced)) // some may be in the lock already
	c.Entry.Unenforced = slices.Compact(slices.Sorted(slices.Values(all)))
	s := c.session
	before := s.Lock
	next := before.Clone()
	next.Put(c.Entry)
	if !c.Same && !sealed {
		return fmt.Errorf("%s %s: %w", c.Entry.Name, c.Entry.Version, ErrChanged)
	}
	if err := s.isOwn(c.Entry.Name); err != nil {
		return err
	}
	if err := ownFolder(s.store.Folder(c.Entry.Name, c.Entry.Version), c.Entry.Name+" "+c.Entry.Version); err != nil {
		return err
	}
	if err := c.secret(ctx); err != nil {
		return errors.Join(err, c.secretBack())
	}
	if err := s.write(next); err != nil {
		return errors.Join(err, c.secretBack())
	}
	if c.Same {
		return nil
	}
	if err := s.place(c); err != nil {
		return errors.Join(err, s.restore(before), c.secretBack(), c.folderBack())
	}
	return nil
}

// compareAgain compares a Candidate with what is installed by now. What a person has not seen is refused: another
// version that serves, a package that was removed, or more permissions. It may be that another process has installed the same.
func (c *Candidate) compareAgain(ctx context.Context) error {
	s, name, before := c.session, c.Entry.Name, *c
	changed := fmt.Errorf("%s %s: %w", name, c.Entry.Version, ErrChanged)
	if digest, err := origin.Digest(ctx, c.stage.dir); err != nil {
		return err
	} else if digest != c.Entry.Digest {
		return changed
	}
	if !c.shown.again {
		if err := s.named(c.Content, c.shown.from.Name, c.Entry.Tag); err != nil {
			return err
		}
	}
	if err := s.compare(ctx, c); err != nil {
		return err
	}
	there := s.Lock.Find(name, c.Entry.Version)
	isSame := there != nil && there.Digest == c.Entry.Digest && there.Serves && !c.shown.again
	if was := before.shown.versions; (len(was) > 0 || c.shown.again) && !same(was, c.shown.versions) && !isSame {
		return changed
	}
	unseen := func(now, seen []permission.Permission) bool {
		return slices.ContainsFunc(now, func(p permission.Permission) bool { return !slices.Contains(seen, p) })
	}
	if unseen(c.More, before.More) || unseen(c.Unenforced, before.Unenforced) {
		return changed
	}
	return nil
}

// same reports whether a lock would have the same of two lists.
func same(a, b []lockfile.Package) bool {
	return bytes.Equal((&lockfile.Lock{Packages: a}).Text(), (&lockfile.Lock{Packages: b}).Text())
}

// TakeBack undoes Install: the lock has of the package what it had before, and so have its folder and its Secret. Entries that
// another orla has changed since then stay, with an error.
func (c *Candidate) TakeBack(ctx context.Context) error {
	s, name := c.session, c.Entry.Name
	written, was := versionsOf(s.Lock, name), c.shown.versions
	return s.change(ctx, func() error {
		if !same(versionsOf(s.Lock, name), written) {
			return fmt.Errorf("%s: %w", name, ErrChanged)
		}
		next, isNew := s.Lock.Clone(), true
		for _, entry := range written {
			next.Remove(name, entry.Version)
		}
		for _, entry := range was {
			next.Put(entry)
			isNew = isNew && entry.Version != c.Entry.Version
		}
		if err := errors.Join(c.secretBack(), s.write(next)); err != nil {
			return err
		}
		if isNew {
			return os.RemoveAll(s.store.Folder(name, c.Entry.Version))
		}
		return c.folderBack()
	})
}

// restore writes the lock of before.
func (s *Session) restore(before *lockfile.Lock) error {
	if err := lockfile.Write(s.store.Lock, before); err != nil {
		return fmt.Errorf("the lock could not be restored: %w", err)
	}
	s.Lock = before
	return nil
}

// seal makes the stage as it is to stay: everybody may read it, it has its record, and it would survive a crash.
func (c *Candidate) seal() error {
	if err := c.session.step("seal"); err != nil {
		return err
	}
	err := filepath.WalkDir(c.stage.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755) //nolint:gosec // a sandbox has another user
	})
	if err != nil {
		return err
	}
	record := filepath.Join(c.stage.dir, lockfile.RecordName)
	if err := os.WriteFile(record, lockfile.RecordOf(c.Entry).Text(), 0o644); err != nil { //nolint:gosec // the same
		return err
	}
	if err := c.session.step("sync"); err != nil {
		return err
	}
	return wholefile.SyncTree(c.stage.dir)
}

// place moves a stage to its folder.
func (s *Session) place(c *Candidate) error {
	above, target := filepath.Join(s.store.Dir, c.Entry.Name), s.store.Folder(c.Entry.Name, c.Entry.Version)
	if err := s.step("make the folder"); err != nil {
		return err
	}
	if err := os.Mkdir(above, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a sandbox has another user
		return err
	}
	if err := s.step("move"); err != nil {
		removeEmpty(above)
		return err
	}
	err := os.Rename(c.stage.dir, target)
	if err != nil && exists(target) {
		err = c.swap(target)
		c.undo.replaced = err == nil
	}
	if err != nil {
		removeEmpty(above)
		return err
	}
	if err := s.step("sync the folders"); err != nil {
		return nil //nolint:nilerr // it is installed; only a crash of the machine could undo it
	}
	return errors.Join(wholefile.SyncNames(above), wholefile.SyncNames(s.store.Dir))
}

// folderBack puts the folder of the same version back that was there before.
func (c *Candidate) folderBack() error {
	if !c.undo.replaced {
		return nil
	}
	c.undo.replaced = false
	return c.swap(c.session.store.Folder(c.Entry.Name, c.Entry.Version))
}

// swap exchanges the stage and the folder of the same version. If that needs several steps, the next Session undoes the first
// one without the second.
func (c *Candidate) swap(target string) error {
	if err := exchange(c.stage.dir, target); err != nil {
		old := filepath.Join(c.session.store.Dir, work, oldStart+c.Entry.Name+"@"+c.Entry.Version)
		if err := os.RemoveAll(old); err != nil {
			return err
		}
		if err := os.Rename(target, old); err != nil {
			return err
		}
		if err := os.Rename(c.stage.dir, target); err != nil {
			return errors.Join(err, os.Rename(old, target))
		}
		if err := os.Rename(old, c.stage.dir); err != nil {
			return err
		}
	}
	c.stage.holdAgain()
	return nil
}
