package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tree is what stands below a root: enough to tell a real change of a file's
// attributes from noise, and to find what changed without being told.
type tree struct {
	root   string
	ignore func(path string, isDir bool) bool
	dirs   map[string]fs.FileMode // permissions of each folder, by absolute path
	files  map[string]stamp       // everything else
}

// stamp is what a file looks like from outside. Permissions other than the
// executable bits are left out: they change nothing about a tool.
type stamp struct {
	size  int64
	mtime time.Time
	mode  fs.FileMode
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), mtime: info.ModTime(), mode: info.Mode() & (fs.ModeType | 0o111)}
}

func newTree(root string, ignore func(string, bool) bool) *tree {
	return &tree{root: root, ignore: ignore, dirs: map[string]fs.FileMode{}, files: map[string]stamp{}}
}

// scan records path and all that is below it. It calls enter, if not nil, for
// each folder before it lists it, so that a watch set there misses nothing.
// What vanishes meanwhile, or may not be read, is left out; any other trouble
// ends the scan.
func (t *tree) scan(path string, enter func(dir string) error) error {
	// Only the root is followed when it is a link: the target of any other link
	// is either below the root itself or none of our business.
	stat := os.Lstat
	if path == t.root {
		stat = os.Stat
	}
	info, err := stat(path)
	switch {
	case err != nil:
		return unlessLeftOut(err)
	case !info.IsDir():
		t.files[path] = stampOf(info)
		return nil
	}
	t.dirs[path] = info.Mode().Perm()
	if enter != nil {
		if err := enter(path); err != nil {
			return unlessLeftOut(err)
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return unlessLeftOut(err)
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		if t.ignored(child, e.IsDir()) {
			continue
		}
		if err := t.scan(child, enter); err != nil {
			return err
		}
	}
	return nil
}

// unlessLeftOut drops the errors that say that a path is gone or not for us.
func unlessLeftOut(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// below reports whether path is inside the root, not the root itself.
func (t *tree) below(path string) bool { return isBelow(path, t.root) }

// isBelow reports whether path is inside dir.
func isBelow(path, dir string) bool {
	rest, found := strings.CutPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator)))
	return found && len(rest) > 1 && rest[0] == filepath.Separator
}

func (t *tree) ignored(path string, isDir bool) bool {
	rel, err := filepath.Rel(t.root, path)
	return err == nil && t.ignore(filepath.ToSlash(rel), isDir)
}

// exists reports whether there was anything at the root.
func (t *tree) exists() bool {
	_, dir := t.dirs[t.root]
	_, file := t.files[t.root]
	return dir || file
}

// forget removes path, and what is below it if it was a folder, and reports what it was.
func (t *tree) forget(path string) (wasFile, wasDir bool) {
	_, wasFile = t.files[path]
	delete(t.files, path)
	if _, wasDir = t.dirs[path]; wasDir {
		gone := func(p string) bool { return p == path || isBelow(p, path) }
		maps.DeleteFunc(t.dirs, func(p string, _ fs.FileMode) bool { return gone(p) })
		maps.DeleteFunc(t.files, func(p string, _ stamp) bool { return gone(p) })
	}
	return wasFile, wasDir
}

// diff names the first path, in order, that is not in next as it is in t.
func (t *tree) diff(next *tree) (path string, differs bool) {
	var paths []string
	for p := range t.dirs {
		if _, same := next.dirs[p]; !same {
			paths = append(paths, p)
		}
	}
	for p := range next.dirs {
		if _, same := t.dirs[p]; !same {
			paths = append(paths, p)
		}
	}
	for p, s := range t.files {
		if now, there := next.files[p]; !there || !s.equal(now) {
			paths = append(paths, p)
		}
	}
	for p := range next.files {
		if _, there := t.files[p]; !there {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return "", false
	}
	return slices.Min(paths), true
}

func (s stamp) equal(o stamp) bool {
	return s.size == o.size && s.mtime.Equal(o.mtime) && s.mode == o.mode
}
