package rules

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// globs are names in which * stands for any characters but /.
type globs struct {
	exact  map[string]bool
	begin  ends      // patterns by what they begin with
	end    ends      // those that begin with *, by what they end with
	middle []pattern // those that begin and end with *
}

// pattern is a name with a *.
type pattern string

// ends are patterns by one of their ends, and how long the ends are.
type ends struct {
	of   map[string][]pattern
	long map[int]bool
}

func newEnds() ends { return ends{map[string][]pattern{}, map[int]bool{}} }

func (e ends) add(end string, p pattern) {
	e.of[end] = append(e.of[end], p)
	e.long[len(end)] = true
}

func newGlobs(list []string) *globs {
	g := &globs{exact: map[string]bool{}, begin: newEnds(), end: newEnds()}
	for _, name := range list {
		name = fold(name)
		if strings.Contains(name, "*") {
			g.addPattern(pattern(name))
		} else {
			g.exact[name] = true
		}
	}
	return g
}

func (g *globs) addPattern(p pattern) {
	text := string(p)
	switch first, last := text[:strings.IndexByte(text, '*')], text[strings.LastIndexByte(text, '*')+1:]; {
	case first != "":
		g.begin.add(first, p)
	case last != "":
		g.end.add(last, p)
	default:
		g.middle = append(g.middle, p)
	}
}

func (g *globs) add(other globs) {
	maps.Copy(g.exact, other.exact)
	for _, e := range []ends{other.begin, other.end} {
		for _, list := range e.of {
			for _, p := range list {
				g.addPattern(p)
			}
		}
	}
	g.middle = append(g.middle, other.middle...)
}

// match reports whether one of some folded names is meant. It costs in proportion to the different lengths of the ends of patterns,
// and to the patterns that have an end of a name, or none.
func (g *globs) match(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if g.exact[name] {
			return true
		}
		fits := func(p pattern) bool { return p.fits(name) }
		for n := range g.begin.long {
			if n <= len(name) && slices.ContainsFunc(g.begin.of[name[:n]], fits) {
				return true
			}
		}
		for n := range g.end.long {
			if n <= len(name) && slices.ContainsFunc(g.end.of[name[len(name)-n:]], fits) {
				return true
			}
		}
		return slices.ContainsFunc(g.middle, fits)
	})
}

// escapes leave nothing but * to be special in a pattern.
var escapes = strings.NewReplacer(`\`, `\\`, `?`, `\?`, `[`, `\[`)

// fits reports whether a name is one of those that a pattern stands for.
func (p pattern) fits(name string) bool {
	ok, err := path.Match(escapes.Replace(string(p)), name)
	return ok && err == nil
}
