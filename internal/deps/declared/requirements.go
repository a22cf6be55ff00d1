package declared

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// howAllowed ends the errors about what an installed package may not ask for.
const howAllowed = "ask its publisher to change it, or trust what it installs by scripts: true for the package below packages in orla.yaml"

const packageName = `[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`

var (
	// requirement is a package of an index: its name and extras, its versions, its marker, and its hashes.
	requirement = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(` + packageName + `)[ \t]*(\[[ \t]*` + packageName + `(?:[ \t]*,[ \t]*` + packageName + `)*[ \t]*\])?` +
			`[ \t]*(` + versionClause + `(?:[ \t]*,[ \t]*` + versionClause + `)*)?` +
			`[ \t]*(;[A-Za-z0-9_.()<>=!~"' \t,+*-]+?)?` +
			`((?:[ \t]+--hash=sha(?:256|384|512):[0-9a-f]+)*)$`)
	})
	archive      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tbz|txz|gz|bz2|xz|zst)$`) })
	localInclude = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:(-r|-c)[ \t]*|(--requirement|--constraint)(?:[ \t]+|=))([A-Za-z0-9_.][A-Za-z0-9_./-]*)$`)
	})
	indexOption = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:--index-url|--extra-index-url|-i)(?:[ \t]+|=)(\S+)$`)
	})
	comment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[ \t])#.*$`) })
)

const versionClause = `(?:===|==|~=|!=|<=|>=|<|>)[ \t]*[A-Za-z0-9][A-Za-z0-9.*+!_-]*`

// plainText returns an error if a text has characters by which two readers may see other lines in it.
func plainText(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8")
	}
	for n, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
		for _, r := range line {
			if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
				return fmt.Errorf("has the character %U in line %d, which readers take in different ways", r, n+1)
			}
		}
	}
	return nil
}

// oneRequirement returns what a line asks for in the one form that is handed on.
func oneRequirement(line string) (text string, hashed, ok bool) {
	m := requirement().FindStringSubmatch(line)
	if m == nil || archive().MatchString(m[1]) || strings.Contains(m[4], "--") {
		return "", false, false
	}
	text = m[1] + m[2] + m[3]
	if m[4] != "" {
		text += " " + strings.TrimRight(m[4], " \t")
	}
	return text + m[5], m[5] != "", true
}

// readRequirements reads a requirements.txt and what it includes, all of which must be below root. indexes are those that
// the operator uses.
func readRequirements(root, file string, indexes []string) (Packages, error) {
	r := requirementsReader{root: root, indexes: indexes, seen: map[string]bool{}}
	err := r.file(file, false)
	return r.Packages, err
}

const (
	// MostBytes bounds a file that says what a package needs, and all that a requirements.txt includes.
	MostBytes = 4 << 20
	// MostIncluded bounds the files that a requirements.txt includes.
	MostIncluded = 100

	longestLine = 64 << 10 // of a requirements.txt, with what it goes on with
)

type requirementsReader struct {
	Packages
	root    string
	indexes []string
	seen    map[string]bool
	read    int // bytes
}

func (r *requirementsReader) file(file string, constraints bool) error {
	rel, err := filepath.Rel(r.root, file)
	if err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("%s is not in the package; %s", file, howAllowed)
	}
	if key := fmt.Sprint(constraints, rel); r.seen[key] {
		return nil
	} else if r.seen[key] = true; len(r.seen) > MostIncluded {
		return fmt.Errorf("%s includes more than %d files", file, MostIncluded)
	}
	text, err := ReadBelow(r.root, file)
	if err != nil {
		return err
	}
	return r.lines(file, string(text), constraints)
}

// ReadBelow reads a file of a package, which no link may lead out of.
func ReadBelow(root, file string) ([]byte, error) {
	rel, err := filepath.Rel(root, file)
	if err != nil {
		return nil, err
	}
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	real, err := regularfile.ResolveBelow(realRoot, rel)
	if err == nil && !regularfile.Within(realRoot, real) {
		err = errors.New("a link leads out of it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not in the package: %w", file, err)
	}
	text, err := regularfile.Read(real, MostBytes+1)
	if err == nil && len(text) > MostBytes {
		err = fmt.Errorf("it has over %d bytes; %s", MostBytes, howAllowed)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := plainText(text); err != nil {
		return nil, fmt.Errorf("%s %w; %s", file, err, howAllowed)
	}
	return text, nil
}

// lines reads the lines of a file.
func (r *requirementsReader) lines(file, text string, constraints bool) error {
	if r.read += len(text); r.read > MostBytes {
		return fmt.Errorf("%s: the files that say what is needed have over %d bytes", file, MostBytes)
	}
	var open []string // the parts of a line that goes on
	size, begun, n := 0, 0, 0
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if n++; len(open) == 0 {
			size, begun = 0, n
		}
		rest, goesOn := strings.CutSuffix(strings.TrimSpace(comment().ReplaceAllString(line, "")), `\`)
		if rest = strings.TrimSpace(rest); rest != "" {
			open = append(open, rest)
		}
		if size += len(rest) + 1; size > longestLine {
			return fmt.Errorf("%s:%d: the line has over %d bytes", file, begun, longestLine)
		}
		if goesOn || len(open) == 0 {
			continue
		}
		if err := r.line(file, strings.Join(open, " "), constraints); err != nil {
			return fmt.Errorf("%s:%d: %w", file, begun, err)
		}
		open = open[:0]
	}
	if len(open) > 0 {
		return fmt.Errorf("%s:%d: the line %.200q does not end", file, begun, strings.Join(open, " "))
	}
	return nil
}

func (r *requirementsReader) line(file, line string, constraints bool) error {
	if m := localInclude().FindStringSubmatch(line); m != nil {
		return r.file(filepath.Join(filepath.Dir(file), m[3]), constraints || m[1] == "-c" || m[2] == "--constraint")
	}
	if m := indexOption().FindStringSubmatch(line); m != nil {
		for _, index := range r.indexes {
			if strings.TrimRight(index, "/") == strings.TrimRight(m[1], "/") {
				return nil // it is asked in any case
			}
		}
		return fmt.Errorf("%.200q names an index that this Orla does not use: an installed package cannot choose one; if you trust it, set UV_DEFAULT_INDEX in Orla's environment", line)
	}
	text, _, ok := oneRequirement(line)
	if !ok {
		return refusedLine(line)
	}
	if constraints {
		r.Constraints = append(r.Constraints, text)
	} else {
		r.Required = append(r.Required, text)
	}
	return nil
}

func refusedLine(line string) error {
	return fmt.Errorf("%.200q is not the name of a package with its versions, which is all that an installed package may ask for (no paths, URLs or options); %s", line, howAllowed)
}

// Exported reads the list that uv makes of a lock: one version of each package, with hashes.
func Exported(lock, text string) (Packages, error) {
	var a Packages
	r := requirementsReader{root: "/"}
	if err := plainText([]byte(text)); err != nil {
		return a, fmt.Errorf("%s %w", lock, err)
	}
	if err := r.lines(lock, text, false); err != nil {
		return a, err
	}
	for _, line := range r.Required {
		if _, hashed, _ := oneRequirement(line); !hashed || !strings.Contains(line, "==") {
			return a, fmt.Errorf("%s has %.200q without a version and a hash: an installed package may need packages of indexes alone; %s", lock, line, howAllowed)
		}
	}
	if len(r.Constraints) > 0 || len(r.seen) > 0 {
		return a, fmt.Errorf("%s includes files", lock)
	}
	return r.Packages, nil
}
