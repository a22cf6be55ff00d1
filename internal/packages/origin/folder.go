package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// notCopied are the folders of version control, and the environment that cannot be moved.
var notCopied = []string{".git", ".hg", ".svn", ".jj", ".venv"}

// Copy copies a folder of this machine into another one, which must be empty or missing. It leaves out
// the folders of version control, and .venv.
func Copy(ctx context.Context, from, into string, limits Limits) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return write(ctx, into, limits.orDefault(), false, &tree{root: root, skip: func(name string, isDir bool) bool {
		return slices.Contains(notCopied, path.Base(name)) && (isDir || path.Base(name) == ".git")
	}})
}

// Digest returns the digest of a tree on the disk ("h1:", as golang.org/x/mod/sumdb/dirhash computes it):
// of names, content, targets of links, and whether the owner may execute a file. The file Record at the top does not
// count. A name in the digest begins with the kind of the entry.
func Digest(ctx context.Context, dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	from := &tree{root: root, skip: func(name string, _ bool) bool { return name == Record }}
	// Somebody has limited what was installed; what was added since then still has an end.
	entries, err := from.list(ctx, Limits{Bytes: 1 << 60, Files: 1_000_000})
	if err != nil {
		return "", err
	}
	var names []string
	targets := map[string]string{}
	for _, e := range entries {
		name := string(e.kind) + " " + e.name
		switch {
		case e.kind == link:
			targets[name] = e.target
		case e.exec:
			name = "executable " + e.name
		}
		names = append(names, name)
	}
	return dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		as, file, _ := strings.Cut(name, " ")
		switch as {
		case string(folder), string(link):
			return io.NopCloser(strings.NewReader(targets[name])), nil
		}
		return from.open(file)
	})
}

// tree is a folder of this machine.
type tree struct {
	root *os.Root
	skip func(name string, isDir bool) bool
}

func (t *tree) list(ctx context.Context, limits Limits) (list []entry, err error) {
	err = fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case t.skip(name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case len(list) >= limits.Files:
			return fmt.Errorf("%w: there are over %d files and folders", ErrTooLarge, limits.Files)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		info, err := t.root.Lstat(name)
		if err != nil {
			return err
		}
		e := entry{name: name}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			e.kind, e.size, e.exec = file, info.Size(), mode&0o100 != 0
		case mode.IsDir():
			e.kind = folder
		case mode&fs.ModeSymlink != 0:
			e.kind = link
			if e.target, err = t.root.Readlink(name); err != nil {
				return err
			}
		default:
			return refused(name, "it is %s", regularfile.KindOf(mode))
		}
		list = append(list, e)
		return nil
	})
	return list, err
}

// open opens a regular file, and nothing that has replaced it.
func (t *tree) open(name string) (*os.File, error) {
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(refused(name, "it is not a regular file any more"), f.Close())
	}
	return f, nil
}

func (t *tree) files(_ context.Context, entries []entry, put func(int, io.Reader) error) error {
	for i, e := range entries {
		if e.kind != file {
			continue
		}
		f, err := t.open(e.name)
		if err != nil {
			return err
		}
		if err := errors.Join(put(i, f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
