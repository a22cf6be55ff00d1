package watch

import (
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	gitignoreName = ".gitignore"

	// Each path is compared with all rules, so their number is bounded: in one file, and in all
	// files of a tree together. Further rules are not read.
	maxRules     = 1000
	maxAllRules  = 4000
	maxRule      = 255       // bytes of a rule
	maxAnyDepth  = 4         // ** in a rule: each multiplies the time that comparing takes
	maxGitignore = 256 << 10 // bytes of a file, whose lines need not be rules
)

// rules are the lines of a .gitignore. The last one that matches decides.
type rules []rule

type rule struct {
	pattern string // of a path relative to the rules' folder, or of a name
	name    bool   // the pattern is that of the last element of a path
	plain   bool   // the same, which is that name itself
	negated bool   // what an earlier rule ignores is not ignored
	dirOnly bool
}

// parseRules reads lines as gitignore(5) describes them. A malformed line matches nothing, and
// is left out. parseRules reads at most the given number of rules, and none that is too long; all
// reports whether it has read every rule.
func parseRules(lines iter.Seq[string], most int) (rs rules, all bool) {
	all = true
	for line := range lines {
		r, ok := parseRule(line)
		switch {
		case !ok:
		case len(line) > maxRule, strings.Count(r.pattern, "**") > maxAnyDepth:
			all = false
		case len(rs) == most:
			return rs, false
		default:
			rs = append(rs, r)
		}
	}
	return rs, all
}

func parseRule(line string) (r rule, ok bool) {
	line = strings.TrimSuffix(line, "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if strings.HasPrefix(line, "#") {
		return rule{}, false
	}
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	if line == "" || strings.HasSuffix(line, "/") || strings.Contains(line, "//") {
		return rule{}, false // no path can match it
	}
	if !strings.Contains(line, "/") {
		if r.pattern = translate(line); r.pattern != "**" {
			r.name, r.plain = true, !strings.ContainsAny(r.pattern, `*?[\`)
			return r, doublestar.ValidatePattern(r.pattern)
		}
		line = "**/" + line
	}
	line = translate(strings.TrimPrefix(line, "/"))
	// In git it matches everything inside; in the library, the folder too.
	if inside, found := strings.CutSuffix(line, "/**"); found {
		line = inside + "/**/*"
	}
	r.pattern = line
	return r, doublestar.ValidatePattern(line)
}

// translate converts a git pattern for the library, which has {} as a special form, and differs in
// patterns with more than two stars or with two next to a name.
func translate(pattern string) string {
	names := strings.Split(pattern, "/")
	for i, name := range names {
		if len(name) > 1 && strings.Trim(name, "*") == "" {
			names[i] = "**"
			continue
		}
		var b strings.Builder
		escaped := false
		last := ' '
		for _, c := range name {
			switch {
			case escaped:
			case c == '*' && last == '*':
				continue
			case c == '{' || c == '}':
				b.WriteByte('\\')
			}
			b.WriteRune(c)
			last = c
			if escaped {
				last = ' '
			}
			escaped = !escaped && c == '\\'
		}
		names[i] = b.String()
	}
	return strings.Join(names, "/")
}

// emptied returns rules for the folders in which everything is ignored, so that they are not
// watched.
func (rs rules) emptied() (folders rules) {
	if rs.negate() {
		return nil
	}
	for _, r := range rs {
		if dir, found := strings.CutSuffix(r.pattern, "/**/*"); found && dir != "**" && !r.dirOnly {
			folders = append(folders, rule{pattern: dir, dirOnly: true})
		}
	}
	return folders
}

// negate reports whether a rule makes paths not ignored.
func (rs rules) negate() bool {
	return slices.ContainsFunc(rs, func(r rule) bool { return r.negated })
}

// matches reports whether a rule matches a path relative to the rules' folder.
func (r rule) matches(rel string) bool {
	if r.name {
		rel = rel[strings.LastIndexByte(rel, '/')+1:]
	}
	if r.plain {
		return rel == r.pattern
	}
	return doublestar.MatchUnvalidated(r.pattern, rel)
}

// often is how many rules are compared between two looks at the time: those that strangers write take up to a millisecond each.
const often = 8

// decide returns what the rules say about a path relative to their folder, if they say anything. rest, if it is not nil,
// may let others work in between. If it returns an error nothing counts any more.
func (rs rules) decide(rel string, isDir bool, rest func() error) (ignored, decided bool) {
	compared := 0
	for _, r := range slices.Backward(rs) {
		if (isDir || !r.dirOnly) && r.matches(rel) {
			return !r.negated, true
		}
		if compared++; rest != nil && compared%often == 0 && rest() != nil {
			return true, true
		}
	}
	return false, false
}

func (rs rules) ignore(rel string, isDir bool, rest func() error) bool {
	ignored, _ := rs.decide(rel, isDir, rest)
	return ignored
}

// gitignore has the rules of the .gitignore files from a root downwards. It reads each file when a
// path in its folder is checked for the first time.
type gitignore struct {
	root    string
	folders map[string]folderRules // by folder, relative to the root
	taken   int                    // rules in all of them
	over    string                 // the file that was first to have more than are read; "" if none has
}

// folderRules are the rules of a .gitignore for its folder.
type folderRules struct {
	rules
	emptied rules
}

// ignores reports whether rel is ignored. It is not used for paths inside ignored folders, which are
// not entered. rest is that of rules.decide.
func (g *gitignore) ignores(rel string, isDir bool, rest func() error) bool {
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		name := rel
		if dir != "." {
			name = rel[len(dir)+1:]
		}
		rs := g.of(dir)
		if ignored, decided := rs.decide(name, isDir, rest); decided {
			return ignored
		}
		if isDir && rs.emptied.ignore(name, true, rest) && !g.of(rel).negate() { // a negated rule in the folder could match files in it
			return true
		}
		if dir == "." {
			return false
		}
	}
}

func (g *gitignore) of(dir string) folderRules {
	rs, known := g.folders[dir]
	if !known {
		name := filepath.Join(g.root, filepath.FromSlash(dir), gitignoreName)
		text, whole := readRules(name)
		found, all := parseRules(strings.SplitSeq(text, "\n"), min(maxRules, maxAllRules-g.taken))
		if (!all || !whole) && g.over == "" {
			g.over = name
		}
		rs = folderRules{found, found.emptied()}
		g.folders[dir] = rs
		g.taken += len(found)
	}
	return rs
}

// forget removes the rules of a folder.
func (g *gitignore) forget(dir string) {
	g.taken -= len(g.folders[dir].rules)
	delete(g.folders, dir)
}

// readRules reads a file of rules, or its beginning; whole reports whether it is the whole file. A
// file that cannot be read has no rules.
func readRules(name string) (text string, whole bool) {
	// Links are not followed, as git does not either.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", true
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", true
	}
	read, err := io.ReadAll(io.LimitReader(f, maxGitignore+1))
	if err != nil {
		return "", true
	}
	text = string(read[:min(len(read), maxGitignore)])
	if whole = len(text) == len(read); !whole {
		text = text[:strings.LastIndexByte(text, '\n')+1] // no half of a rule
	}
	return strings.TrimPrefix(text, "\ufeff"), whole
}

// Gitignored returns a function that reports whether the .gitignore files at root and below it ignore a path, relative to root
// with slashes. It must be asked about folders before what is in them, and not about what is in ignored ones. It may
// not be used from several goroutines.
func Gitignored(root string) func(rel string, isDir bool) bool {
	g := &gitignore{root: root, folders: map[string]folderRules{}}
	return func(rel string, isDir bool) bool { return g.ignores(rel, isDir, nil) }
}
