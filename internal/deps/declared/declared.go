// Package declared reads what a package from elsewhere asks for (SPEC R6). All that it returns is known to name packages of the
// operator's indexes and registries. An installer gets this, and never the files: it may read them in another way.
package declared

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Files declare what a package needs.
type Files struct {
	Root       string // the folder of the package
	File, Lock string // in it; "" for no lock
	Block      []byte // the content of the PEP 723 block of File; nil without one
}

// Packages are those of Python that are asked for, each a line of a requirements.txt.
type Packages struct {
	Name                  string // of the project; "" where none is in quotes
	Version               string // the versions of Python that it requires; "" for all
	Required, Constraints []string
}

// Python reads what the files ask for, but for a lock. indexes are those that the operator uses.
func (f Files) Python(indexes []string) (p Packages, err error) {
	switch {
	case len(f.Block) > MostBytes:
		err = fmt.Errorf("its block of inline script metadata (PEP 723) has over %d bytes", MostBytes)
	case f.Block != nil:
		if err = plainText(f.Block); err == nil {
			top, _, _ := strings.Cut("\n"+string(f.Block), "\n[")
			p, err = readTable([]byte(top))
		}
		if err == nil && f.Lock == "" && ownSources().Match(f.Block) {
			err = errOwnSources
		}
	case filepath.Ext(f.File) == ".toml":
		var text []byte
		if text, err = ReadBelow(f.Root, f.File); err != nil {
			return p, err
		}
		p, err = readTable(ProjectTable(text))
		if err == nil && f.Lock == "" && ownSources().Match(text) {
			err = errOwnSources
		}
	default:
		return readRequirements(f.Root, f.File, indexes)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", f.File, err)
	}
	return p, nil
}

var errOwnSources = fmt.Errorf("tool.uv has sources or indexes of its own, which an installed package cannot choose; %s", howAllowed)

var separators = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })

// Lacks returns the first package that is needed on all machines and not there; "" if there is none.
func (p Packages) Lacks(required []string) string {
	has := make(map[string]bool, len(p.Required))
	for _, line := range p.Required {
		if m := requirement().FindStringSubmatch(line); m != nil {
			has[oneName(m[1])] = true
		}
	}
	for _, line := range required {
		if m := requirement().FindStringSubmatch(line); m != nil && m[4] == "" && !has[oneName(m[1])] {
			return m[1]
		}
	}
	return ""
}

// oneName returns the one form of the names that are of one package of an index.
func oneName(name string) string {
	return strings.ToLower(separators().ReplaceAllString(name, "-"))
}

// Project returns a pyproject.toml that has what was read, and nothing else.
func (p Packages) Project() string {
	return fmt.Sprintf("[project]\nname = %q\nversion = \"0\"\n%s", p.Name, p.keys())
}

// Script returns a script with a block of inline metadata that has the same.
func (p Packages) Script() string { return Script(p.keys()) }

// Script returns a script with a block of inline metadata.
func Script(block string) string {
	var text strings.Builder
	text.WriteString("# /// script\n")
	for line := range strings.Lines(block) {
		text.WriteString("# " + line)
	}
	text.WriteString("# ///\n")
	return text.String()
}

func (p Packages) keys() string {
	var text strings.Builder
	if p.Version != "" {
		fmt.Fprintf(&text, "requires-python = %q\n", p.Version)
	}
	text.WriteString("dependencies = [\n")
	for _, one := range p.Required {
		fmt.Fprintf(&text, "  %q,\n", one)
	}
	text.WriteString("]\n")
	return text.String()
}
