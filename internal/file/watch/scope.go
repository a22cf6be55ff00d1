package watch

import (
	"path"
	"slices"
	"strings"
)

// scope says which paths below a root count. Paths are relative to the root, with forward slashes.
type scope struct {
	entries []string // the paths to watch; empty means all
	except  []string
	ignore  func(path string, isDir bool) bool
	globs   rules
	git     *gitignore // nil unless .gitignore files are respected

	rest func() error // for rules.decide
}

func newScope(root string, opts Options) *scope {
	s := &scope{ignore: opts.Ignore}
	var globs []string
	for _, g := range opts.Globs {
		if rest, found := strings.CutPrefix(g, "./"); found {
			g = "/" + rest // git ignores such a pattern; its author means the root
		}
		globs = append(globs, g)
	}
	s.globs, _ = parseRules(slices.Values(globs), maxRules)
	s.globs = append(s.globs, s.globs.emptied()...)
	for _, p := range opts.Paths {
		s.entries = append(s.entries, clean(p))
	}
	if slices.Contains(s.entries, ".") {
		s.entries = nil
	}
	for _, p := range opts.Except {
		s.except = append(s.except, clean(p))
	}
	if opts.Gitignore {
		s.git = &gitignore{root: root, folders: map[string]folderRules{}}
	}
	return s
}

// clean returns a path in the form that the tree uses. A path outside the root matches nothing.
func clean(p string) string { return path.Clean(strings.TrimLeft(p, "/")) }

// named reports whether rel is one of the paths to watch, which the root always is.
func (s *scope) named(rel string) bool { return rel == "." || slices.Contains(s.entries, rel) }

// counts reports whether rel is one of the paths to watch, or below one.
func (s *scope) counts(rel string) bool {
	return len(s.entries) == 0 || slices.ContainsFunc(s.entries, func(e string) bool { return within(rel, e) })
}

// leads reports whether one of the paths to watch is below rel.
func (s *scope) leads(rel string) bool {
	return rel == "." || slices.ContainsFunc(s.entries, func(e string) bool { return e != rel && within(e, rel) })
}

// concerns reports whether rel counts or, if it is a folder, may lead to something that does. Whatever else is skipped, without a look.
func (s *scope) concerns(rel string) bool { return s.counts(rel) || s.leads(rel) }

// resting makes comparisons with rules rest, until the function that it returns is called.
func (s *scope) resting(rest func() error) (end func()) {
	before := s.rest
	s.rest = rest
	return func() { s.rest = before }
}

// skips reports whether rel is ignored. An ignored folder is not entered.
func (s *scope) skips(rel string, isDir bool) bool {
	if rel == "." {
		return false
	}
	leads := s.leads(rel)
	switch {
	case s.ignore(rel, isDir), slices.Contains(s.except, rel):
		return true
	case !s.counts(rel) && (!isDir || !leads):
		return true
	case s.globs.ignore(rel, isDir, s.rest):
		return true
	default:
		// A path that was named counts, even if git ignores it.
		return s.git != nil && !leads && !s.named(rel) && s.git.ignores(rel, isDir, s.rest)
	}
}

// isRules reports whether rel is a .gitignore that matters.
func (s *scope) isRules(rel string) bool { return s.git != nil && path.Base(rel) == gitignoreName }

// forgetRules removes the rules of a folder, which are read again when needed.
func (s *scope) forgetRules(dir string) {
	if s.git != nil {
		s.git.forget(dir)
	}
}

// forgetRulesBelow drops the rules of a folder and of all that were below it, of which some
// may be gone.
func (s *scope) forgetRulesBelow(dir string) {
	if s.git == nil {
		return
	}
	for of := range s.git.folders {
		if within(of, dir) {
			s.git.forget(of)
		}
	}
}

// over returns a file of rules of which not all are read; "" if there is none.
func (s *scope) over() string {
	if s.git == nil {
		return ""
	}
	return s.git.over
}
