package watch

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// tree is what stands below a root and counts, as it was when it was last
// compared. Paths are relative to the root, which is ".", with forward slashes.
type tree struct {
	root    string
	scope   *scope
	content bool // files differ by what is in them
	seed    maphash.Seed
	seen    map[string]stamp
	looked  uint64 // the signature of all that stirred found since, or 0
}

func newTree(root string, s *scope, content bool) *tree {
	return &tree{root: root, scope: s, content: content, seed: maphash.MakeSeed(), seen: map[string]stamp{}}
}

func (t *tree) abs(rel string) string { return filepath.Join(t.root, filepath.FromSlash(rel)) }

// rel returns the path of something inside the root, and whether it is inside.
func (t *tree) rel(abs string) (string, bool) {
	rest, found := strings.CutPrefix(abs, strings.TrimSuffix(t.root, string(filepath.Separator)))
	if !found || len(rest) < 2 || rest[0] != filepath.Separator {
		return "", false
	}
	return filepath.ToSlash(rest[1:]), true
}

// look returns what rel looks like from outside, and whether it is a link that
// is followed. The root is followed, and what was named to be watched; of other
// links the file they lead to, but only where the content counts.
func (t *tree) look(rel string) (s stamp, link bool, err error) {
	abs := t.abs(rel)
	info, err := os.Lstat(abs)
	if err != nil {
		return stamp{}, false, err
	}
	named := t.scope.named(rel)
	if info.Mode().Type() != fs.ModeSymlink || !named && !t.content {
		return stampOf(info), false, nil
	}
	target, err := os.Stat(abs)
	switch {
	case err == nil && (named || target.Mode().IsRegular()):
		info = target
	case err != nil && rel == ".":
		return stamp{}, false, err
	}
	return stampOf(info), !info.IsDir(), nil
}

// walk calls visit for rel and all that is below it and counts or leads to
// something that does. It calls enter, if not nil, for each folder before it
// lists it and for each followed link before it looks at it, so that a watch
// set there misses nothing. What vanishes meanwhile, or may not be read, is
// left out; any other trouble ends the walk.
func (t *tree) walk(rel string, enter func(rel string, link bool) error, visit func(string, stamp)) error {
	s, link, err := t.look(rel)
	if err != nil {
		return unlessLeftOut(err)
	}
	isDir := s.mode.IsDir()
	if t.scope.skips(rel, isDir) {
		return nil
	}
	if link && rel != "." && enter != nil { // what leads to the root is watched apart
		if err := unlessLeftOut(enter(rel, true)); err != nil {
			return err
		}
		if s, _, err = t.look(rel); err != nil {
			return unlessLeftOut(err)
		}
	}
	visit(rel, s)
	if !isDir {
		return nil
	}
	if enter != nil {
		if err := enter(rel, false); err != nil {
			return unlessLeftOut(err)
		}
	}
	t.scope.forgetRules(rel)
	entries, err := os.ReadDir(t.abs(rel))
	if err != nil {
		return unlessLeftOut(err)
	}
	for _, e := range entries {
		if err := t.walk(path.Join(rel, e.Name()), enter, visit); err != nil {
			return err
		}
	}
	return nil
}

// compare looks at rel and all that is below it, remembers what it finds, and
// names the first path, in order, that is not what it was. An event may have
// told that rel was written, which counts as much as a new look. The root is
// named if nothing else is. After an error nothing has been remembered.
func (t *tree) compare(rel string, written bool, enter func(rel string, link bool) error) (first string, differs bool, err error) {
	t.looked = 0
	if t.seen[rel].mode.IsDir() {
		t.scope.forgetRulesBelow(rel)
	}
	r := &reader{seed: t.seed, left: maxReadAtOnce}
	now := map[string]stamp{}
	note := func(rel string) {
		if !differs || first == "." || rel != "." && rel < first {
			first, differs = rel, true
		}
	}
	err = t.walk(rel, enter, func(p string, s stamp) {
		old, known := t.seen[p]
		sure := written && p == rel
		if t.content && !s.mode.IsDir() {
			if known && old.looks(s) && !old.fresh && !sure {
				s.sum = old.sum
			} else {
				s.sum = r.sum(t.abs(p), s)
			}
		}
		now[p] = s
		if t.differs(p, old, known, s) || sure && !t.content && t.scope.counts(p) {
			note(p)
		}
	})
	if err != nil {
		return "", false, err
	}
	gone := func(p string) {
		if _, there := now[p]; there {
			return
		}
		if s := t.seen[p]; t.scope.counts(p) && (!t.content || !s.mode.IsDir()) {
			note(p)
		}
		delete(t.seen, p)
	}
	old, known := t.seen[rel]
	switch {
	case known && old.mode.IsDir():
		for p := range t.seen {
			if within(p, rel) {
				gone(p)
			}
		}
	case known:
		gone(rel)
	}
	if rel == "." {
		t.seen = now // as small as it can be
	} else {
		maps.Copy(t.seen, now)
	}
	return first, differs, nil
}

// differs reports whether p, which is there now, is not what it was.
func (t *tree) differs(p string, old stamp, known bool, now stamp) bool {
	switch {
	case p == "." && known && old.mode.IsDir() && now.mode.IsDir() && old.ino != now.ino:
		return true // another folder: whoever stands in the old one stands nowhere
	case now.mode.IsDir() && (!known || old.mode.IsDir()):
		return !t.content && t.scope.counts(p) && (!known || old.mode != now.mode)
	case !known || old.mode != now.mode:
		return true
	case t.content && old.sum != 0 && now.sum != 0:
		return old.sum != now.sum
	case t.content:
		return old.size != now.size || old.mtime != now.mtime
	default:
		return !old.looks(now)
	}
}

// stirred reports whether anything looks different from outside than when it was
// last compared or, if that was later, than stirred last found it: what goes on
// changing is told from what has changed.
func (t *tree) stirred() (bool, error) {
	// Sums of what stands for each path: they do not depend on an order.
	was := t.looked
	if was == 0 {
		for p, s := range t.seen {
			was += t.signature(p, s)
		}
	}
	var now uint64
	if err := t.walk(".", nil, func(p string, s stamp) { now += t.signature(p, s) }); err != nil {
		return false, err
	}
	t.looked = max(now, 1) // of nothing it is 0
	return max(was, 1) != t.looked, nil
}

// signature stands for what p looks like from outside.
func (t *tree) signature(p string, s stamp) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(p) // never fails, nor does Write
	b := make([]byte, 0, 33)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.mtime))
	b = binary.LittleEndian.AppendUint64(b, s.ino)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.mode))
	if t.content && s.fresh {
		b = append(b, 1) // to be read once more when that is over
	}
	h.Write(b)
	return h.Sum64()
}

// unlessLeftOut drops the errors that say that a path is gone or not for us.
func unlessLeftOut(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	return dir == "." || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}
