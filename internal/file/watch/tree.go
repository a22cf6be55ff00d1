package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tree has the state of everything below a root that counts, at the last comparison. Paths are
// relative to the root, which is ".", with forward slashes.
type tree struct {
	root    string
	scope   *scope
	content bool // compare the contents of files
	seed    maphash.Seed
	seen    map[string]stamp
	looked  uint64 // the signature at the last call of stirred since then, or 0

	hurries bool          // walks do not rest, and several goroutines look at what is in a folder
	looks   chan struct{} // has a value for each walk that works, of all trees of a Hub
	working bool          // one of them is this tree's
	worked  time.Duration // by walks without a rest, before since
	since   time.Time     // when working has changed
}

func newTree(root string, s *scope, content bool, looks chan struct{}) *tree {
	return &tree{root: root, scope: s, content: content, seed: maphash.MakeSeed(), seen: map[string]stamp{}, looks: looks}
}

// slice is how long walks work at a time. Then they rest for as long, and let others work: files that change
// all the time, however many, and rules, however slow, must leave most of the machine to calls (SPEC S2).
const slice = 10 * time.Millisecond

// begin waits until few other walks work. Its error is that ctx ends before.
func (t *tree) begin(ctx context.Context) error {
	select {
	case t.looks <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	now := time.Now()
	t.working, t.worked, t.since = true, max(0, t.worked-now.Sub(t.since)), now
	return nil
}

// end lets others work.
func (t *tree) end() {
	if !t.working {
		return
	}
	<-t.looks
	now := time.Now()
	t.working, t.worked, t.since = false, t.worked+now.Sub(t.since), now
}

// rest rests if walks have worked for a slice. Its error is that ctx ends before.
func (t *tree) rest(ctx context.Context) error {
	if t.hurries || t.worked+time.Since(t.since) < slice {
		return ctx.Err()
	}
	t.end()
	select {
	case <-time.After(slice):
	case <-ctx.Done():
		return ctx.Err()
	}
	return t.begin(ctx)
}

// breathing returns what rests after each slice of work that needs no turn. Its error is that ctx ends.
func breathing(ctx context.Context) (rest func() error) {
	since := time.Now()
	return func() error {
		if time.Since(since) < slice {
			return ctx.Err()
		}
		select {
		case <-time.After(slice):
		case <-ctx.Done():
		}
		since = time.Now()
		return ctx.Err()
	}
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

// look returns the metadata of rel, and whether it is a link that is followed. The root and the
// paths to watch are followed. Other links are followed if they lead to files and contents are
// compared.
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

// walk calls visit for rel and for everything below it that counts or leads to something that does.
// If enter is not nil, walk calls it for each folder before it lists the folder, and for each
// followed link before it looks at the target, so that a watch that is set there misses nothing.
// Paths that vanish during the walk or that must not be read are left out; any other error ends the
// walk, and so does the end of ctx. A walk waits until few others are under way.
func (t *tree) walk(ctx context.Context, rel string, enter func(rel string, link bool) error, visit func(string, stamp)) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	defer t.scope.resting(func() error { return t.rest(ctx) })()
	return t.walkOn(ctx, rel, &looked{}, enter, visit)
}

func (t *tree) walkOn(ctx context.Context, rel string, before *looked, enter func(rel string, link bool) error, visit func(string, stamp)) error {
	if err := t.rest(ctx); err != nil {
		return err
	}
	s, link, err := before.stamp, before.link, before.err
	if !before.done {
		s, link, err = t.look(rel)
	}
	if err != nil {
		return unlessLeftOut(err)
	}
	isDir := s.mode.IsDir()
	if t.scope.skips(rel, isDir) {
		return ctx.Err() // if ctx has ended, it may not be ignored
	}
	if link && rel != "." && enter != nil { // the steps to the root are watched separately
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
	entries, err := before.entries, before.listErr
	if !before.listed {
		entries, err = os.ReadDir(t.abs(rel))
	}
	if err != nil {
		return unlessLeftOut(err)
	}
	if len(t.scope.entries) > 0 {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !t.scope.concerns(path.Join(rel, e.Name())) })
	}
	ahead := ahead{in: t, folder: rel, entries: entries}
	for i, e := range entries {
		if err := t.walkOn(ctx, path.Join(rel, e.Name()), ahead.of(ctx, i), enter, visit); err != nil {
			return err
		}
	}
	return nil
}

// compare looks at rel and everything below it, stores what it finds, and returns the first path, in
// order, that differs. written says that an event reported a write to rel, which makes rel differ
// even if it looks the same. If nothing else differs, the root is named. After an error nothing has
// been stored.
func (t *tree) compare(ctx context.Context, rel string, written bool, enter func(rel string, link bool) error) (first string, differs bool, err error) {
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
	err = t.walk(ctx, rel, enter, func(p string, s stamp) {
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
		t.seen = now // as small as possible
	} else {
		maps.Copy(t.seen, now)
	}
	return first, differs, nil
}

// differs reports whether p, which exists, differs from its old stamp.
func (t *tree) differs(p string, old stamp, known bool, now stamp) bool {
	switch {
	case p == "." && known && old.mode.IsDir() && now.mode.IsDir() && old.ino != now.ino:
		return true // another folder: processes in the old one are nowhere now
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

// stirred reports whether any metadata differs from the last comparison or, if that was later, the
// last call of stirred. So a tree that is still changing can be distinguished from one that has
// changed.
func (t *tree) stirred(ctx context.Context) (bool, error) {
	// A sum of the signatures of all paths does not depend on the order.
	was := t.looked
	if was == 0 {
		for p, s := range t.seen {
			was += t.signature(p, s)
		}
	}
	var now uint64
	if err := t.walk(ctx, ".", nil, func(p string, s stamp) { now += t.signature(p, s) }); err != nil {
		return false, err
	}
	t.looked = max(now, 1) // 0 means that there is none
	return max(was, 1) != t.looked, nil
}

// signature returns a hash of the path and metadata of p.
func (t *tree) signature(p string, s stamp) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(p) // never fails; Write does not either
	b := make([]byte, 0, 33)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.mtime))
	b = binary.LittleEndian.AppendUint64(b, s.ino)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.mode))
	if t.content && s.fresh {
		b = append(b, 1) // to be read again once it is not fresh
	}
	h.Write(b)
	return h.Sum64()
}

// unlessLeftOut removes the errors which say that a path is gone or must not be read.
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

// sum returns a number for the files that were seen, in any order.
func (t *tree) sum() (all uint64) {
	for p, s := range t.seen {
		if s.mode.IsDir() || !t.scope.counts(p) {
			continue
		}
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, p, "\x00", s.size, s.mtime, s.ino, s.mode) // never fails
		all += h.Sum64()
	}
	return all
}
