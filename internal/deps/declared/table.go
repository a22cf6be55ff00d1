package declared

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/deps/versions"
)

var (
	nameKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*name[ \t]*=[ \t]*["'](` + packageName + `)["'][ \t]*(?:#.*)?\r?$`)
	})
	projectHeader   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*\[[ \t]*project[ \t]*\][ \t]*(#.*)?\r?$`) })
	nextHeader      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*\[`) })
	dependenciesKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*dependencies[ \t]*=`) })
	noDependencies  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*dependencies[ \t]*=[ \t]*\[\s*\]`) })
	oneDependency   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*dependencies[ \t]*=[ \t]*("[^"\r\n]*"|'[^'\r\n]*')`)
	})
	requiresPython = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*requires-python[ \t]*=[ \t]*["']([^"']*)["']`)
	})
	anyPython  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*["']?requires-python["']?[ \t]*=`) })
	ownSources = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*\[+[ \t]*["']?tool["']?[ \t]*\.[ \t]*["']?uv["']?[ \t]*\.[ \t]*["']?(?:sources|index)\b`)
	})
	severalStrings = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"""|'''`) })
)

// ProjectTable returns the table project of a pyproject.toml, without those below it.
func ProjectTable(text []byte) []byte {
	at := projectHeader().FindIndex(text)
	if at == nil {
		return nil
	}
	table := text[at[1]:]
	if end := nextHeader().FindIndex(table); end != nil {
		table = table[:end[0]]
	}
	return table
}

// HasDependencies reports whether a table has some. The installer reads them.
func HasDependencies(table []byte) bool {
	return dependenciesKey().Match(table) && !noDependencies().Match(table)
}

// CheckList returns an error if a table has one text in place of the list of its dependencies. pip would look for a package with the name of
// each letter.
func CheckList(table []byte) error {
	if m := oneDependency().FindSubmatch(table); m != nil && !severalStrings().Match(table) {
		return fmt.Errorf("dependencies is a text, and must be a list: dependencies = [%s]", m[1])
	}
	return nil
}

// RequiresPython returns the versions that a table requires, as it has them; "" for none.
func RequiresPython(table []byte) string {
	if m := requiresPython().FindSubmatch(table); m != nil {
		return string(m[1])
	}
	return ""
}

// readTable reads a table. It refuses what it does not understand: nothing else of the file is used.
func readTable(table []byte) (Packages, error) {
	var d Packages
	text := string(table)
	if severalStrings().MatchString(text) && dependenciesKey().MatchString(text) {
		text = withoutLongTexts(text)
	}
	if m := nameKey().FindStringSubmatch(text); m != nil {
		d.Name = m[1]
	}
	if anyPython().MatchString(text) {
		m := requiresPython().FindAllStringSubmatch(text, -1)
		if len(m) != 1 {
			return d, errors.New("requires-python is not one text in quotes")
		}
		var err error
		if d.Version, err = versions.OfPython(m[0][1]); err != nil {
			return d, fmt.Errorf("%w; %s", err, howAllowed)
		}
	}
	keys := dependenciesKey().FindAllStringIndex(text, -1)
	if len(keys) > 1 {
		return d, errors.New("has dependencies more than once")
	}
	if len(keys) == 0 {
		return d, nil
	}
	list, err := stringsIn(text[keys[0][1]:])
	if err != nil {
		return d, fmt.Errorf("dependencies %w", err)
	}
	for _, one := range list {
		line, hashed, ok := oneRequirement(strings.TrimSpace(one))
		if !ok || hashed {
			return d, refusedLine(one)
		}
		d.Required = append(d.Required, line)
	}
	return d, nil
}

var longText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)"""(?:[^\\]|\\.)*?"""|'''.*?'''`) })

// withoutLongTexts leaves out texts of several lines, such as a description, whose lines are not keys.
func withoutLongTexts(text string) string { return longText().ReplaceAllString(text, `""`) }

// stringsIn reads a list of texts in TOML, which begins the text.
func stringsIn(text string) (list []string, err error) {
	bad := errors.New("is not a list of plain texts, which is all that an installed package may have")
	blank := func() {
		for {
			text = strings.TrimLeft(text, " \t\r\n")
			if !strings.HasPrefix(text, "#") {
				return
			}
			_, text, _ = strings.Cut(text, "\n")
		}
	}
	text, ok := strings.CutPrefix(strings.TrimLeft(text, " \t"), "[")
	if !ok {
		return nil, bad
	}
	for {
		if blank(); strings.HasPrefix(text, "]") {
			return list, nil
		}
		if text == "" || text[0] != '"' && text[0] != '\'' {
			return nil, bad
		}
		one, rest, ok := strings.Cut(text[1:], text[:1])
		if !ok || strings.ContainsAny(one, "\\\n") || one == "" {
			return nil, bad
		}
		list, text = append(list, one), rest
		blank()
		if after, more := strings.CutPrefix(text, ","); more {
			text = after
		} else if !strings.HasPrefix(text, "]") {
			return nil, bad
		}
	}
}
