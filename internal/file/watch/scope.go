package watch

import (
	"path"
	"slices"
	"strings"
)

// scope says what counts below a root. Paths are relative to it, with forward
// slashes.
type scope struct {
	entries []string // what was named to be watched; empty: all
	except  []string
	ignore  func(path string, isDir bool) bool
	globs   rules
	git     *gitignore // nil unless wanted
}

func newScope(root string, opts Options) *scope {
	s := &scope{ignore: opts.Ignore}
	var globs []string
	for _, g := range opts.Globs {
		if rest, found := strings.CutPrefix(g, "./"); found {
			g = "/" + rest // git has no use for it; whoever writes it means the root
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

// clean makes a path the way the tree has it. One that leads out of the root
// matches nothing there.
func clean(p string) string { return path.Clean(strings.TrimLeft(p, "/")) }

// named reports whether rel was named to be watched, which the root always is.
func (s *scope) named(rel string) bool { return rel == "." || slices.Contains(s.entries, rel) }

// counts reports whether rel was named, or is below something that was.
func (s *scope) counts(rel string) bool {
	return len(s.entries) == 0 || slices.ContainsFunc(s.entries, func(e string) bool { return within(rel, e) })
}

// leads reports whether something below rel was named.
func (s *scope) leads(rel string) bool {
	return rel == "." || slices.ContainsFunc(s.entries, func(e string) bool { return e != rel && within(e, rel) })
}

// skips reports whether rel counts for nothing, and a folder is not entered.
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
	case s.globs.ignore(rel, isDir):
		return true
	default:
		// Whoever names a path means it, also if git does not want it.
		return s.git != nil && !leads && !s.named(rel) && s.git.ignores(rel, isDir)
	}
}

// isRules reports whether rel is a file of rules.
func (s *scope) isRules(rel string) bool { return s.git != nil && path.Base(rel) == gitignoreName }

// forgetRules drops the rules of a folder: they are read again when needed.
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
