package deps

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/deps/declared"
	"github.com/orla-project/orla/internal/file/regularfile"
)

const (
	// mostBytes bounds a file that declares dependencies, or a script.
	mostBytes = 32 << 20
	// mostKnown bounds the files that are remembered. Those of tools that are gone stay among them until then.
	mostKnown = 1 << 16
	// unsettled is the age below which a file may change once more without another time.
	unsettled = 100 * time.Millisecond
)

// Files finds out what tools need. It remembers what it has read of files that do not change. The zero
// value is ready, and may be used from any goroutine.
type Files struct {
	mu    sync.Mutex // guards known
	known map[string]fact
	// parse is held by who parses what a package from elsewhere asks for: strangers choose how much memory that takes.
	parse sync.Mutex
}

// fact is what is known of one file.
type fact struct {
	stamp    stamp
	sum      [sha256.Size]byte
	block    []byte   // of a script
	declares bool     // a pyproject.toml: it has project.dependencies; a package.json: it has dependencies
	includes []string // a requirements.txt: by -r and -c
	empty    bool     // a requirements.txt: it has nothing but comments
	err      error
}

// stamp changes when a file does.
type stamp struct {
	inode uint64
	size  int64
	time  time.Time
}

// role is what a file is read for.
type role int

const (
	plain role = iota
	script
	project
	requirements
	nodeProject
)

// locks are the locks of Node, by the program that reads them.
var locks = []struct{ file, program string }{
	{"package-lock.json", "npm"}, {"npm-shrinkwrap.json", "npm"}, {"pnpm-lock.yaml", "pnpm"},
}

// Detect returns what a tool needs, from its files alone. It is the zero Need if they declare nothing,
// or if the user has made an environment next to them.
func (f *Files) Detect(s Source) (Need, error) {
	need := Need{source: s}
	var files []summed
	var err error
	if s.Language == Python {
		files, err = f.python(&need)
	} else {
		files, err = f.node(&need)
	}
	if err != nil {
		return Need{}, err
	}
	if len(s.Command) > 0 && need.File == "" {
		need.File = s.Script
	}
	if need.File == "" {
		return Need{Unlocked: need.Unlocked}, nil
	}
	if need.Digest, err = digestOf(s, files); err != nil {
		return Need{}, err
	}
	return need, nil
}

// python looks for what a Python tool needs.
func (f *Files) python(need *Need) ([]summed, error) {
	for _, folder := range need.source.Folders {
		if isFolder(filepath.Join(folder, ".venv")) && len(need.source.Command) == 0 {
			return nil, nil
		}
	}
	own, err := f.read(need.source.Script, script)
	if err != nil {
		return nil, err
	}
	if own.block != nil {
		need.File, need.block = need.source.Script, own.block
		files := []summed{{"script", sha256.Sum256(own.block)}}
		return f.locked(need, files, need.File+".lock")
	}
	for _, folder := range need.source.Folders {
		found, err := f.read(filepath.Join(folder, "pyproject.toml"), project)
		switch lock := filepath.Join(folder, "uv.lock"); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case found.declares || exists(lock):
			need.File = filepath.Join(folder, "pyproject.toml")
			return f.locked(need, []summed{{"pyproject.toml", found.sum}}, lock)
		}
		file := filepath.Join(folder, "requirements.txt")
		files, err := f.requirements(file)
		if errors.Is(err, fs.ErrNotExist) && !exists(file) {
			continue
		}
		if own, _ := f.read(file, requirements); err == nil && own.empty {
			continue
		}
		need.File = file
		return files, err
	}
	return nil, nil
}

// locked adds a lock to the files that count, if it exists.
func (f *Files) locked(need *Need, files []summed, lock string) ([]summed, error) {
	found, err := f.read(lock, plain)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	need.Lock = lock
	return append(files, summed{"lock", found.sum}), err
}

// requirements returns a requirements.txt and the files that it includes.
func (f *Files) requirements(file string) (files []summed, err error) {
	todo, seen, size := []string{file}, map[string]bool{file: true}, int64(0)
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		found, err := f.read(next, requirements)
		if err != nil {
			return nil, err
		}
		name := next
		if rel, err := filepath.Rel(filepath.Dir(file), next); err == nil {
			name = rel // so that two tools with equal files are equal
		}
		files = append(files, summed{name, found.sum})
		for _, included := range found.includes {
			if !filepath.IsAbs(included) {
				included = filepath.Join(filepath.Dir(next), included)
			}
			if !seen[included] {
				seen[included] = true
				todo = append(todo, included)
			}
		}
		if size += found.stamp.size; size > declared.MostBytes || len(seen) > declared.MostIncluded {
			return nil, fmt.Errorf("%s includes more than %d files, or has over %d bytes with them", file, declared.MostIncluded, declared.MostBytes)
		}
	}
	return files, nil
}

// node looks for what a Node tool needs.
func (f *Files) node(need *Need) ([]summed, error) {
	for _, folder := range need.source.Folders {
		if isFolder(filepath.Join(folder, "node_modules")) && len(need.source.Command) == 0 {
			return nil, nil
		}
	}
	for _, folder := range need.source.Folders {
		file := filepath.Join(folder, "package.json")
		found, err := f.read(file, nodeProject)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		files := []summed{{"package.json", found.sum}}
		for _, lock := range locks {
			if files, err = f.locked(need, files, filepath.Join(folder, lock.file)); err != nil {
				return nil, err
			}
			if need.Lock != "" {
				need.File = file
				break
			}
		}
		if need.Lock == "" && found.declares {
			need.Unlocked = file
		}
		for _, extra := range []string{".npmrc", "pnpm-workspace.yaml"} {
			if found, err := f.read(filepath.Join(folder, extra), plain); err == nil {
				files = append(files, summed{extra, found.sum})
			}
		}
		return files, nil
	}
	return nil, nil
}

// read returns what is known of a file, and reads it if it has changed.
func (f *Files) read(path string, as role) (fact, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fact{}, err
	}
	now := stamp{size: info.Size(), time: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = sys.Ino
	}
	f.mu.Lock()
	known, ok := f.known[path]
	f.mu.Unlock()
	if ok && known.stamp == now {
		return known, known.err
	}
	if as == script && info.Size() > mostBytes {
		return fact{}, nil // nobody has written that
	}
	text, err := regularfile.Read(path, mostBytes)
	if err != nil {
		return fact{}, fmt.Errorf("%s: %w", path, err)
	}
	known = fact{stamp: now, sum: sha256.Sum256(text)}
	if len(text) > declared.MostBytes && as != script && as != plain { // what it declares is looked for at each change
		as, known.err = plain, fmt.Errorf("%s has over %d bytes", path, declared.MostBytes)
	}
	switch as {
	case script:
		known.block, known.err = blockOf(text)
		if known.err != nil {
			known.err = fmt.Errorf("%s: %w", path, known.err)
		}
	case project:
		table := declared.ProjectTable(text)
		known.declares = declared.HasDependencies(table)
		if known.err = cmp.Or(garbled(text), declared.CheckList(table)); known.err != nil {
			known.err = fmt.Errorf("%s: %w", path, known.err)
		}
	case requirements:
		known.includes, known.empty = includesOf(text), !somethingIn(text)
	case nodeProject:
		var all map[string]json.RawMessage
		var list map[string]string
		_ = json.Unmarshal(text, &all) // the installer says what is wrong with it
		_ = json.Unmarshal(all["dependencies"], &list)
		known.declares = len(list) > 0
	case plain:
	}
	if time.Since(now.time) < unsettled {
		return known, known.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= mostKnown {
		f.known = map[string]fact{}
	}
	f.known[path] = known
	return known, known.err
}

// blockOf returns the content of the PEP 723 block of a script that declares dependencies, or nil.
func blockOf(text []byte) ([]byte, error) {
	var found, open []byte
	inside := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, " \t\r\n")
		switch {
		case !inside && bytes.Equal(line, []byte("# /// script")):
			if found != nil {
				return nil, errors.New("has two blocks of inline script metadata (PEP 723)")
			}
			inside, open = true, []byte{}
		case !inside:
		case bytes.Equal(line, []byte("# ///")):
			inside, found = false, open
		case len(line) == 0 || line[0] != '#':
			return nil, errors.New(`its block of inline script metadata (PEP 723) does not end with "# ///"`)
		default:
			open = append(append(open, bytes.TrimPrefix(line[1:], []byte(" "))...), '\n')
		}
	}
	if inside {
		return nil, errors.New(`its block of inline script metadata (PEP 723) does not end with "# ///"`)
	}
	if len(found) > declared.MostBytes {
		return nil, fmt.Errorf("its block of inline script metadata (PEP 723) has over %d bytes", declared.MostBytes)
	}
	if err := garbled(found); err != nil {
		return nil, fmt.Errorf("in its block of inline script metadata (PEP 723): %w", err)
	}
	top, _, _ := bytes.Cut(append([]byte("\n"), found...), []byte("\n["))
	if !declared.HasDependencies(top) {
		return nil, nil
	}
	if err := declared.CheckList(top); err != nil {
		return nil, fmt.Errorf("in its block of inline script metadata (PEP 723): %w", err)
	}
	return found, nil
}

// garbled returns an error for what TOML never has, so that a file that was damaged does not look like one that declares
// nothing: then a tool would lose its packages.
func garbled(text []byte) error {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		switch {
		case !utf8.Valid(line):
			return fmt.Errorf("line %d is not UTF-8", n)
		case bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f }):
			return fmt.Errorf("line %d has a control character", n)
		case bytes.HasPrefix(line, []byte("<<<<<<< ")):
			return fmt.Errorf("line %d begins a conflict of git that is not resolved", n)
		}
	}
	return nil
}

// somethingIn reports whether a requirements.txt has a line that is not a comment.
func somethingIn(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

var includedByOption = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:-r|-c|--requirement|--constraint)(?:[ \t]+|=)?(\S.*)$`)
})

// includesOf returns the files that a requirements.txt names by -r and -c.
func includesOf(text []byte) (files []string) {
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, " #")
		m := includedByOption().FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.Contains(m[1], "://") {
			continue
		}
		files = append(files, strings.Trim(strings.TrimSpace(m[1]), `"'`))
	}
	return files
}
