package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
)

// Candidate is a package in a stage that was checked and can be installed.
type Candidate struct {
	Content
	// Entry is what the lock is going to say.
	Entry lockfile.Package
	// Before is the entry of the version that serves now; nil if there is none.
	Before *lockfile.Package
	// More are permissions that were not granted before.
	More []permission.Permission
	// Unenforced are permissions that Orla cannot hold the package to, with the reasons, and that were not accepted
	// before.
	Unenforced []permission.Permission
	Reasons    []string
	// Secret has values for the Secret of the package, by key; nil for none.
	Secret map[string]string
	// Same says that this very content is installed already.
	Same bool

	session *Session
	stage   stage
	shown   shown
	undo    undo
}

// undo is what TakeBack needs to know of an Install.
type undo struct {
	replaced bool // what is in the stage was the folder of the same version
	secret   bool // the Secret was changed
	// before and after are the Secret of before, and the one in its place; nil for none.
	before, after []byte
}

// shown is what a Candidate was compared with.
type shown struct {
	from     From
	again    bool               // it has to be what the lock has
	versions []lockfile.Package // of its name, in the lock
}

// From says where a package comes from, and what was agreed to in advance.
type From struct {
	URL      string
	Ref      string   // a tag or a commit; "" or latest is the latest tag
	Name     string   // that the package must have; "" for any
	Version  string   // of a server, which has no tool.yaml to say it
	Registry string   // that named it
	Signers  []string // who may sign it, by the registry; nil for all
	// AcceptSigner accepts another signer than that of before, Unsigned a version without a signature after signed ones.
	AcceptSigner, Unsigned bool
}

// Git fetches a package from a repository.
func (s *Session) Git(ctx context.Context, from From) (*Candidate, error) {
	ref := from.Ref
	if ref == "" || ref == "latest" {
		tags, others, err := s.store.Git.Tags(ctx, from.URL)
		if err != nil {
			return nil, err
		}
		if ref = origin.Latest(tags); ref == "" && len(others) > 0 {
			return nil, fmt.Errorf("%s has no tag with a version, such as v1.0.0, but %q; a commit can be given in its place", from.URL, others)
		} else if ref == "" {
			return nil, fmt.Errorf("%s has no tag with a version, such as v1.0.0; a commit can be given in its place", from.URL)
		}
	}
	source := lockfile.Source{Kind: lockfile.Git, URL: from.URL, Registry: from.Registry}
	return s.prepare(ctx, source, from, nil, func(stage string) (origin.Tree, error) {
		return s.store.Git.Fetch(ctx, from.URL, ref, stage, from.Signers)
	})
}

// Local takes a package from a folder or an archive of this machine.
func (s *Session) Local(ctx context.Context, path string) (*Candidate, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // it is named as it was given
		return nil, fmt.Errorf("%s does not exist", path)
	} else if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	source := lockfile.Source{Kind: lockfile.Local, URL: path}
	return s.prepare(ctx, source, From{}, nil, func(stage string) (origin.Tree, error) { return origin.Tree{}, s.local(ctx, path, stage) })
}

// local brings a folder or an archive of this machine into a stage. A folder that has the folder of tools in it would be copied with
// all that is installed.
func (s *Session) local(ctx context.Context, from, stage string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return origin.Unpack(ctx, from, stage, s.store.Git.Limits)
	}
	if permission.Below(regularfile.Real(s.store.Dir), regularfile.Real(from)) {
		return fmt.Errorf("%s has the folder of tools in it, %s, which does not belong to a package: install it from another folder, or with --tools-dir", from, s.store.Dir)
	}
	return origin.Copy(ctx, from, stage, s.store.Git.Limits)
}

// Made takes a package that fill writes into a folder, such as that of an MCP bundle. from has its name and version.
func (s *Session) Made(ctx context.Context, source lockfile.Source, from From, fill func(dir string) error) (*Candidate, error) {
	return s.prepare(ctx, source, from, nil, func(stage string) (origin.Tree, error) { return origin.Tree{}, fill(stage) })
}

// Locked fetches a package again exactly as the lock has it. It gets what the lock grants, which has to be agreed to.
func (s *Session) Locked(ctx context.Context, entry lockfile.Package) (*Candidate, error) {
	return s.prepare(ctx, entry.Source, From{}, &entry, func(stage string) (tree origin.Tree, err error) {
		switch entry.Source.Kind {
		case lockfile.Git:
			var signers []string
			if entry.Signer != "" {
				signers = []string{entry.Signer}
			}
			if tree, err = s.store.Git.Fetch(ctx, entry.Source.URL, cmp.Or(entry.Tag, entry.Commit), stage, signers); err == nil && tree.Commit != entry.Commit {
				err = moved(entry, tree.Commit)
			}
			return tree, err
		case lockfile.Local:
			return tree, s.local(ctx, entry.Source.URL, stage)
		case lockfile.Bundle, lockfile.Server:
		}
		return tree, fmt.Errorf("%s %s came from %s: install it again from there", entry.Name, entry.Version, entry.Source.URL)
	})
}

// Remade is Locked for a package that fill writes into a folder, as for Made.
func (s *Session) Remade(ctx context.Context, entry lockfile.Package, fill func(dir string) error) (*Candidate, error) {
	return s.prepare(ctx, entry.Source, From{}, &entry, func(stage string) (origin.Tree, error) { return origin.Tree{}, fill(stage) })
}

// prepare makes a Candidate of what fetch brings into a stage. With locked it has to be the tree of that entry of the lock.
func (s *Session) prepare(ctx context.Context, source lockfile.Source, from From, locked *lockfile.Package, fetch func(stage string) (origin.Tree, error)) (c *Candidate, err error) {
	made, err := s.stage()
	if err != nil {
		return nil, err
	}
	c = &Candidate{session: s, stage: made, shown: shown{from: from}}
	defer func() {
		if err != nil {
			c.Discard()
			c = nil
		}
	}()
	if err := s.step("fetch"); err != nil {
		return c, err
	}
	tree, err := fetch(made.dir)
	if err != nil {
		return c, err
	}
	c.Entry = lockfile.Package{Source: source, Tag: tree.Tag, Commit: tree.Commit, Signer: tree.Signer}
	tag := tree.Tag
	if locked != nil {
		from, tag = From{Name: locked.Name, Version: locked.Version}, locked.Tag
	}
	if err := s.inspect(ctx, c, from, tag); err != nil {
		return c, err
	}
	if locked != nil {
		if c.Entry.Digest != locked.Digest || c.Tool.Version != locked.Version {
			return c, fmt.Errorf("%s %s: the tree is not the one that the lock has: it has digest %s, and the lock %s", locked.Name, locked.Version, c.Entry.Digest, locked.Digest)
		}
		c.Entry, c.shown = *locked, shown{again: true}
	}
	return c, s.compare(ctx, c)
}

func moved(entry lockfile.Package, commit string) error {
	return fmt.Errorf("%s %s: the tag %s was commit %s when it was installed, and is %s now: somebody moved it", entry.Name, entry.Version, entry.Tag, entry.Commit, commit)
}

// HasSecret reports whether the Secret that Orla has written for a package is there, which is in no lock. One that git has may be
// somebody else's, and with it what the package does would be in their name.
func (s *Session) HasSecret(ctx context.Context, entry *lockfile.Package) bool {
	b, err := readSecret(filepath.Join(s.store.Dir, entry.Name))
	return err == nil && b.name == entry.Source.SecretName(entry.Name) && s.store.Git.NotTracked(ctx, s.store.Dir, filepath.Join(entry.Name, secretFile)) == nil
}

// IsThere reports whether the folder of an entry has the record of it.
func (s *Session) IsThere(entry lockfile.Package) bool {
	record, err := s.store.record(entry.Name, entry.Version)
	return err == nil && record.Matches(&entry)
}

// inspect checks what is in the stage.
func (s *Session) inspect(ctx context.Context, c *Candidate, from From, tag string) (err error) {
	if err := s.step("check"); err != nil {
		return err
	}
	if c.Entry.Source.Kind == lockfile.Server && exists(filepath.Join(c.stage.dir, ServerFile)) {
		c.Content, err = checkServer(c.stage.dir, from.Version, c.Entry.Source.URL)
	} else {
		c.Content, err = s.check(c.stage.dir, cmp.Or(from.Name, "package"))
	}
	if err != nil {
		return err
	}
	if image := c.Tool.Isolation.Image; (c.Entry.Source.Kind == lockfile.Git || c.Entry.Source.Server != "") && !origin.OnThisMachine(c.Entry.Source.URL) && origin.ImageMayBeThisMachine(image) {
		return fmt.Errorf("runtime.image: %q may be on this machine or next to it, which a package from elsewhere cannot name", image)
	}
	if err := s.named(c.Content, from.Name, tag); err != nil {
		return err
	}
	if c.Entry.Digest, err = origin.Digest(ctx, c.stage.dir); err != nil {
		return err
	}
	c.Entry.Name, c.Entry.Version = c.Tool.Name, c.Tool.Version
	c.Entry.Permissions = permission.Texts(c.Asked)
	c.Entry.Tools = definitions(c.Tool)
	c.Entry.Dependencies, err = dependencies(c.stage.dir)
	return err
}

// compare compares a Candidate with what is installed. It may be called again when that has changed.
func (s *Session) compare(ctx context.Context, c *Candidate) error {
	name := c.Entry.Name
	c.Before, c.shown.versions = s.Lock.Serving(name), versionsOf(s.Lock, name)
	if c.shown.again {
		s.compareWithLock(ctx, c)
		return nil
	}
	c.Same, c.More, c.Unenforced, c.Reasons, c.Entry.Unenforced = false, nil, nil, nil, nil
	for _, old := range s.Lock.Versions(name) {
		if !old.Source.Same(c.Entry.Source) {
			return fmt.Errorf("%s was installed from %s, and %s may not take over its name, permissions and secrets; run orla uninstall %s first", name, old.Source, c.Entry.Source, name)
		}
	}
	if err := s.signed(c, c.shown.from); err != nil {
		return err
	}
	if c.Before != nil && c.Before.Version != c.Entry.Version && c.Tool.Runtime.Generated {
		return OneVersion(*c.Before)
	}
	if old := s.Lock.Find(name, c.Entry.Version); old != nil {
		switch {
		case old.Source.Kind == lockfile.Local && c.Entry.Source.Kind == lockfile.Local: // somebody works on it
		case old.Commit != "" && c.Entry.Commit != old.Commit:
			return moved(*old, c.Entry.Commit)
		case old.Image != "" && c.Entry.Image != "" && old.Image != c.Entry.Image:
			return fmt.Errorf("%s %s: the image %s had the digest %s when it was installed, and has %s now: somebody moved its tag; orla install without a name installs the one that the lock has", name, old.Version, c.Tool.Isolation.Image, old.Image, c.Entry.Image)
		case old.Digest != c.Entry.Digest:
			return fmt.Errorf("%s %s is installed with another tree: it has digest %s, and this one %s", name, old.Version, old.Digest, c.Entry.Digest)
		}
		c.Same = old.Digest == c.Entry.Digest && s.store.differs(ctx, c.Entry) == ""
	}
	var before []permission.Permission
	var accepted []string
	if !c.IsFirst() { // else the lock may be somebody else's, and nobody has agreed here yet
		before, accepted = granted(c.Before), c.Before.Unenforced
	}
	c.More = permission.More(c.Asked, before)
	those, reasons := s.store.Machine.Unenforced(c.Asked)
	if c.Before != nil { // those that only another machine with the same lock cannot enforce stay accepted
		here := permission.Texts(those)
		c.Entry.Unenforced = slices.DeleteFunc(slices.Clone(c.Before.Unenforced), func(text string) bool {
			return !slices.Contains(c.Entry.Permissions, text) || slices.Contains(here, text)
		})
	}
	for i, p := range those {
		if slices.Contains(accepted, p.String()) {
			c.Entry.Unenforced = append(c.Entry.Unenforced, p.String())
			continue
		}
		c.Unenforced, c.Reasons = append(c.Unenforced, p), append(c.Reasons, reasons[i])
	}
	c.Entry.Serves = c.Before == nil || manifest.CompareVersions(c.Entry.Version, c.Before.Version) >= 0 || !s.IsThere(*c.Before)
	return nil
}

// IsOfLock reports whether it has to be what the lock has.
func (c *Candidate) IsOfLock() bool { return c.shown.again }

// KnownImage is the digest of its image that the lock has; "" for none.
func (c *Candidate) KnownImage() string {
	if old := c.session.Lock.Find(c.Entry.Name, c.Entry.Version); old != nil && old.Digest == c.Entry.Digest {
		return old.Image
	}
	return ""
}

// FixImage records the digest of the image that the package names by a tag. An error says that the lock has this version with another one.
func (c *Candidate) FixImage(ctx context.Context, digest string) error {
	c.Entry.Image = digest
	return c.session.compare(ctx, c)
}

// OneVersion is the error for another version of a remote server or an image than that of an entry.
func OneVersion(installed lockfile.Package) error {
	return fmt.Errorf("%s %s is installed, and only one version of a server can be installed; run orla uninstall %[1]s first", installed.Name, installed.Version)
}

// compareWithLock is compare for what the lock has already, perhaps as somebody else wrote it: who installs it here has not
// agreed yet that it gets what the lock grants.
func (s *Session) compareWithLock(ctx context.Context, c *Candidate) {
	c.Asked = granted(&c.Entry)
	if c.Same = s.store.differs(ctx, c.Entry) == ""; c.Same {
		c.More = nil
		c.Unenforced, c.Reasons = s.store.Unaccepted(c.Entry)
		return
	}
	c.More = c.Asked
	c.Unenforced, c.Reasons = s.store.Machine.Unenforced(c.Asked)
}

// Unaccepted returns the permissions of an entry that Orla cannot enforce on this machine, with the reasons, unless its lock says that
// they were accepted. The machine where it was installed may enforce more, as other folders have its programs (SPEC M7).
func (s Store) Unaccepted(entry lockfile.Package) (those []permission.Permission, reasons []string) {
	list, all := s.Machine.Unenforced(granted(&entry))
	for i, p := range list {
		if !slices.Contains(entry.Unenforced, p.String()) {
			those, reasons = append(those, p), append(reasons, all[i])
		}
	}
	return those, reasons
}

// IsFirst reports whether no version serves here yet, whatever the lock says.
func (c *Candidate) IsFirst() bool { return c.Before == nil || !c.session.IsThere(*c.Before) }

// versionsOf are copies of the entries of a name.
func versionsOf(lock *lockfile.Lock, name string) (list []lockfile.Package) {
	for _, p := range lock.Versions(name) {
		list = append(list, *p)
	}
	return list
}

// signed checks the signer against the one of before (SPEC M6).
func (s *Session) signed(c *Candidate, from From) error {
	if c.Entry.Source.Kind != lockfile.Git {
		return nil
	}
	var known []string
	for _, old := range s.Lock.Versions(c.Entry.Name) {
		if old.Signer != "" && !slices.Contains(known, old.Signer) {
			known = append(known, old.Signer)
		}
	}
	switch {
	case c.Entry.Signer == "" && len(known) > 0 && !from.Unsigned:
		return fmt.Errorf("%s %s is not signed, and it was signed by %s before; --unsigned accepts that", c.Entry.Name, c.Entry.Version, fingerprints(known))
	case c.Entry.Signer != "" && len(known) > 0 && !slices.Contains(known, c.Entry.Signer) && !from.AcceptSigner:
		return fmt.Errorf("%s %s is signed by %s, and was signed by %s before; --accept-signer accepts that", c.Entry.Name, c.Entry.Version, origin.Fingerprint(c.Entry.Signer), fingerprints(known))
	}
	c.Entry.Unsigned = c.Entry.Signer == ""
	return nil
}

func fingerprints(keys []string) string {
	var list []string
	for _, key := range keys {
		list = append(list, origin.Fingerprint(key))
	}
	return strings.Join(list, " and ")
}

// granted are the permissions of an entry, which was checked when it was read.
func granted(entry *lockfile.Package) []permission.Permission {
	list, _ := permission.ParseAll(entry.Permissions)
	return list
}

// Discard removes the stage, and with it what an Install has replaced. It may be called again.
func (c *Candidate) Discard() { c.stage.remove() }
