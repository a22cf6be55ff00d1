package deps

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/deps/versions"
)

// declared is what counts of a table project of a pyproject.toml, or of a PEP 723 block, of a package from elsewhere.
type declared struct {
	name, python string
	required     []string
}

var (
	nameKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*name[ \t]*=[ \t]*["'](` + packageName + `)["'][ \t]*(?:#.*)?\r?$`)
	})
	anyPython  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*["']?requires-python["']?[ \t]*=`) })
	ownSources = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*\[+[ \t]*["']?tool["']?[ \t]*\.[ \t]*["']?uv["']?[ \t]*\.[ \t]*["']?(?:sources|index)\b`)
	})
	severalStrings = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"""|'''`) })
)

// readTable reads a table. It refuses what it does not understand: nothing else of the file is used.
func readTable(table []byte) (declared, error) {
	var d declared
	text := string(table)
	if severalStrings().MatchString(text) && dependenciesKey().MatchString(text) {
		text = withoutLongTexts(text)
	}
	if m := nameKey().FindStringSubmatch(text); m != nil {
		d.name = m[1]
	}
	if anyPython().MatchString(text) {
		m := requiresPython().FindAllStringSubmatch(text, -1)
		if len(m) != 1 {
			return d, errors.New("requires-python is not one text in quotes")
		}
		var err error
		if d.python, err = versions.OfPython(m[0][1]); err != nil {
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
		d.required = append(d.required, line)
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

// project writes a pyproject.toml that has what was read, and nothing else.
func (d declared) project() string {
	return fmt.Sprintf("[project]\nname = %q\nversion = \"0\"\n%s", d.name, d.keys())
}

// script writes a script with a block of inline metadata.
func (d declared) script() string {
	var text strings.Builder
	text.WriteString("# /// script\n")
	for line := range strings.Lines(d.keys()) {
		text.WriteString("# " + line)
	}
	text.WriteString("# ///\n")
	return text.String()
}

func (d declared) keys() string {
	var text strings.Builder
	if d.python != "" {
		fmt.Fprintf(&text, "requires-python = %q\n", d.python)
	}
	text.WriteString("dependencies = [\n")
	for _, one := range d.required {
		fmt.Fprintf(&text, "  %q,\n", one)
	}
	text.WriteString("]\n")
	return text.String()
}
