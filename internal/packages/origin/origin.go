// Package origin brings the tree of a package from a git repository, an archive or a folder into a
// new folder, within bounds (SPEC M4). Strangers wrote what it reads.
//
// It does not know what a package is: it reads no manifest. Its invariants: it writes nothing outside
// of the new folder, and nothing but regular files, folders, and links that stay inside; nothing that
// it reads is run; and the whole tree is checked before the first of its files is written.
//
// The caller removes the new folder after an error, and syncs it before it relies on it.
package origin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/orla-project/orla/internal/file/regularfile"
)

const (
	defaultBytes = 256 << 20
	defaultFiles = 20_000
)

// Record is the name of the file in which Orla notes that it installed a package. No package may
// bring one, in whatever case.
const Record = ".orla-package.json"

// Limits bounds a tree.
type Limits struct {
	Bytes int64 // of all files together; if 0, 256 MiB
	Files int   // files, folders and links together; if 0, 20 000
}

func (l Limits) orDefault() Limits {
	return Limits{Bytes: cmp.Or(l.Bytes, defaultBytes), Files: cmp.Or(l.Files, defaultFiles)}
}

// Tree is what is known of a tree that was fetched from a repository.
type Tree struct {
	Commit string
	Tag    string // "" if a commit was asked for
	// Signer is the SSH public key that signed the tag, as ParseSigner returns it; "" if there is no
	// signature by such a key.
	Signer string
}

// ErrNotThere is in the chain of the error if a repository has no such tag or commit.
var ErrNotThere = errors.New("the repository has no such tag or commit")

// ErrTooLarge is in the chain of the error if a limit is exceeded.
var ErrTooLarge = errors.New("too large")

// Unpack unpacks an archive into a folder, which must be empty or missing: .tar.gz or .zip, which the
// content of the file decides. If one folder holds everything in the archive, its content is unpacked.
func Unpack(ctx context.Context, file, into string, limits Limits) error {
	f, info, err := regularfile.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	limits = limits.orDefault()
	if info.Size() > limits.Bytes+limits.overhead() {
		return fmt.Errorf("%w: the archive has %d bytes, and a package at most %d", ErrTooLarge, info.Size(), limits.Bytes)
	}
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return write(ctx, into, limits, true, &tarball{file: f})
	case string(magic) == "PK\x03\x04", string(magic) == "PK\x05\x06":
		return write(ctx, into, limits, true, &zipped{file: f, size: info.Size()})
	}
	return fmt.Errorf("%s is neither a .tar.gz nor a .zip archive", file)
}

// overhead is how many bytes an archive may need for names and the like.
func (l Limits) overhead() int64 { return 64<<10 + int64(l.Files)*2048 }

// source is a tree that can be read.
type source interface {
	// list returns the entries of the tree, with the targets of links. It stops early at a limit.
	list(ctx context.Context, limits Limits) ([]entry, error)
	// files calls put for each entry that is a file, with its place in the list, and its content.
	files(ctx context.Context, entries []entry, put func(i int, content io.Reader) error) error
}

// write checks a tree and writes it into a folder. strip leaves out a folder that holds everything.
func write(ctx context.Context, into string, limits Limits, strip bool, from source) error {
	if err := os.MkdirAll(into, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	entries, err := from.list(ctx, limits)
	if err != nil {
		return err
	}
	tree, err := check(entries, limits, strip)
	if err != nil {
		return err
	}
	s := &stage{root: root, left: limits.Bytes, made: map[string]bool{}}
	if err := from.files(ctx, entries, func(i int, content io.Reader) error {
		return s.file(ctx, tree.names[i], entries[i].exec, content)
	}); err != nil {
		return err
	}
	return s.rest(tree, entries)
}
