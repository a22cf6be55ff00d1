package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/packages/lockfile"
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

// Install installs a Candidate: the lock is written, and then the stage becomes the folder of the version by one
// rename. On an error everything is as it was.
func (c *Candidate) Install(agreed Consent) error {
	defer c.Discard()
	switch {
	case len(c.More) > 0 && !agreed.Permissions:
		return fmt.Errorf("%w that %s gets the permissions that it asks for", ErrConsent, c.Entry.Name)
	case len(c.Unenforced) > 0 && !agreed.Unenforced:
		return fmt.Errorf("%w that %s gets permissions that cannot be enforced", ErrConsent, c.Entry.Name)
	}
	c.Entry.Unenforced = append(c.Entry.Unenforced, permission.Texts(c.Unenforced)...)
	slices.Sort(c.Entry.Unenforced)
	s := c.session
	before := s.Lock
	next := before.Clone()
	next.Put(c.Entry)
	if c.Same {
		return s.write(next)
	}
	if err := c.seal(); err != nil {
		return err
	}
	if err := s.secret(c.Entry.Name, c.Secret, c.Before == nil); err != nil {
		return err
	}
	if err := s.write(next); err != nil {
		return err
	}
	if err := s.place(c.stage, c.Entry); err != nil {
		return errors.Join(err, s.restore(before))
	}
	return nil
}

// restore writes the lock of before.
func (s *Session) restore(before *lockfile.Lock) error {
	if err := lockfile.Write(s.store.Lock, before); err != nil {
		return fmt.Errorf("the lock could not be set back: %w", err)
	}
	s.Lock = before
	return nil
}

// seal makes the stage as it is to stay: everybody may read it, it has its record, and it would survive a crash.
func (c *Candidate) seal() error {
	if err := c.session.step("seal"); err != nil {
		return err
	}
	err := filepath.WalkDir(c.stage, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755) //nolint:gosec // a sandbox has another user
	})
	if err != nil {
		return err
	}
	record := filepath.Join(c.stage, lockfile.RecordName)
	if err := os.WriteFile(record, lockfile.RecordOf(c.Entry).Text(), 0o644); err != nil { //nolint:gosec // the same
		return err
	}
	if err := c.session.step("sync"); err != nil {
		return err
	}
	return syncTree(c.stage)
}

// place moves a stage to its folder.
func (s *Session) place(stage string, entry lockfile.Package) error {
	above, target := filepath.Join(s.store.Dir, entry.Name), s.folder(entry.Name, entry.Version)
	if err := s.step("make the folder"); err != nil {
		return err
	}
	if err := os.Mkdir(above, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a sandbox has another user
		return err
	}
	if err := s.step("move"); err != nil {
		_ = os.Remove(above) // only if it is empty
		return err
	}
	err := os.Rename(stage, target)
	if err != nil && exists(target) {
		err = s.replace(stage, target, entry)
	}
	if err != nil {
		_ = os.Remove(above) // only if it is empty
		return err
	}
	if err := s.step("sync the folders"); err != nil {
		return nil //nolint:nilerr // it is installed; only a crash of the machine could undo it
	}
	return errors.Join(lockfile.SyncDir(above), lockfile.SyncDir(s.store.Dir))
}

// replace puts a stage in the place of the same version. If that needs two steps, the next Session undoes the first
// one without the second.
func (s *Session) replace(stage, target string, entry lockfile.Package) error {
	if err := exchange(stage, target); err == nil {
		return nil // what was there is in the stage, and goes with it
	}
	old := filepath.Join(s.store.Dir, work, oldStart+entry.Name+"@"+entry.Version)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(target, old); err != nil {
		return err
	}
	if err := os.Rename(stage, target); err != nil {
		return errors.Join(err, os.Rename(old, target))
	}
	return os.RemoveAll(old)
}

// secretFile has the Secret of a package, beside its versions. It is in no digest and no lock.
const secretFile = "secret.yaml"

// ignoreText keeps git from taking the Secret.
const ignoreText = "/" + secretFile + "\n/" + ignoreName + "\n"

// withoutSecret removes the Secret of a package, and what keeps git from taking it.
func (s *Session) withoutSecret(name string) error {
	dir := filepath.Join(s.store.Dir, name)
	if text, err := regularfile.Read(filepath.Join(dir, ignoreName), 1000); err == nil && string(text) == ignoreText {
		_ = os.Remove(filepath.Join(dir, ignoreName)) // it does no harm
	}
	return os.Remove(filepath.Join(dir, secretFile))
}

// secret writes the Secret of a package, which this user alone can read. One without a Secret keeps that of before,
// unless it is the first of its name: then what is there was another package's.
func (s *Session) secret(name string, text []byte, first bool) error {
	dir := filepath.Join(s.store.Dir, name)
	switch {
	case len(text) > 0:
	case first && exists(filepath.Join(dir, secretFile)):
		if err := s.step("remove the secret"); err != nil {
			return err
		}
		return s.withoutSecret(name)
	default:
		return nil
	}
	if err := s.step("write the secret"); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a sandbox has another user
		return err
	}
	// Before the Secret: tools may be in version control.
	ignore := filepath.Join(dir, ignoreName)
	if _, err := os.Lstat(ignore); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(ignore, []byte(ignoreText), 0o644); err != nil { //nolint:gosec // git reads it
			return err
		}
	}
	return wholefile.WriteSynced(filepath.Join(dir, secretFile), text)
}
