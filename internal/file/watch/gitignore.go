package watch

import (
	"io"
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
	maxGitignore  = 1 << 20 // bytes of such a file that are read
)

// rules are the lines of a .gitignore, of which the last that matches decides.
type rules []rule

type rule struct {
	pattern string // of a path relative to the rules' folder
	negated bool   // brings back what an earlier rule took out
	dirOnly bool
}

// parseRules reads lines as gitignore(5) describes them. One that is malformed
// matches nothing there, and is left out here.
func parseRules(lines []string) rules {
	var rs rules
	for _, line := range lines {
		if r, ok := parseRule(line); ok {
			rs = append(rs, r)
		}
	}
	return rs
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
		return rule{}, false // no path has a name like that
	}
	if strings.Contains(line, "/") {
		line = strings.TrimPrefix(line, "/")
	} else {
		line = "**/" + line
	}
	line = translate(line)
	// Git: all that is inside. The library: the folder too.
	if inside, found := strings.CutSuffix(line, "/**"); found {
		line = inside + "/**/*"
	}
	r.pattern = line
	return r, doublestar.ValidatePattern(line)
}

// translate makes git's pattern one of the library's, which knows {} where git
// does not, and takes more than two stars, or two beside a name, for something
// else.
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

// emptied are rules for the folders that count for nothing since nothing inside
// them can, so that they are not watched in vain.
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

// negate reports whether a rule brings something back.
func (rs rules) negate() bool {
	return slices.ContainsFunc(rs, func(r rule) bool { return r.negated })
}

// decide returns what the rules say of a path relative to their folder, if
// they say anything.
func (rs rules) decide(rel string, isDir bool) (ignored, decided bool) {
	for _, r := range slices.Backward(rs) {
		if (isDir || !r.dirOnly) && doublestar.MatchUnvalidated(r.pattern, rel) {
			return !r.negated, true
		}
	}
	return false, false
}

func (rs rules) ignore(rel string, isDir bool) bool {
	ignored, _ := rs.decide(rel, isDir)
	return ignored
}

// gitignore is what the .gitignore files from a root downwards say. It reads
// each when it is first asked about something in its folder.
type gitignore struct {
	root  string
	rules map[string]rules // by folder, relative to the root
}

// ignores reports whether rel is ignored. What is inside an ignored folder is
// not asked about, since nobody goes there.
func (g *gitignore) ignores(rel string, isDir bool) bool {
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		name := rel
		if dir != "." {
			name = rel[len(dir)+1:]
		}
		rs := g.of(dir)
		if ignored, decided := rs.decide(name, isDir); decided {
			return ignored
		}
		if isDir && rs.emptied().ignore(name, true) && !g.of(rel).negate() { // which could bring back what is in it
			return true
		}
		if dir == "." {
			return false
		}
	}
}

func (g *gitignore) of(dir string) rules {
	rs, known := g.rules[dir]
	if !known {
		rs = parseRules(readLines(filepath.Join(g.root, filepath.FromSlash(dir), gitignoreName)))
		g.rules[dir] = rs
	}
	return rs
}

// readLines reads a file of rules. One that cannot be read has none.
func readLines(name string) []string {
	// Links are not followed, as git does not either.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxGitignore))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n")
}
