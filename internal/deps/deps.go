// Package deps installs what the files of a tool say that it needs: the packages of Python and Node
// (SPEC R, docs/decisions/0047).
//
// An environment is a folder that is named by a digest of what was declared. It is built next to its
// place and renamed when it is whole, never changed after that, shared by tools that need the same, and
// removed when no tool needs it. The package knows nothing about what a tool is otherwise.
package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
)

// Language is what a tool is written in.
type Language string

// The languages whose packages are installed.
const (
	Python Language = "python"
	Node   Language = "node"
)

// Source is where a tool says what it needs.
type Source struct {
	Language Language
	// Script is the file that the interpreter runs, absolute.
	Script string
	// Folders may have the files that declare dependencies. The first one that has any counts.
	Folders []string
	// Interpreter is the path of the program that runs the script if nothing is needed.
	Interpreter string
	// Command, if not empty, makes the environment in place of the usual installers.
	Command []string
	// NoScripts says that installing must not run code of the packages: strangers chose them.
	NoScripts bool
	// Package is the name and the digest of the installed package that the tool is of; "" for a tool of the user's own.
	// Two packages never share an environment.
	Package string
	// Confined says that the installers run in a sandbox, as the tool does.
	Confined bool
}

// Need is what a tool needs. The zero Need is nothing.
type Need struct {
	// Digest names the environment. It is "" if nothing is needed.
	Digest string
	// File declares the dependencies, and Lock fixes their versions; "" if there is no lock.
	File, Lock string
	// Unlocked is a package.json that has dependencies and no lock: nothing is installed.
	Unlocked string

	source Source
	block  []byte // the content of a PEP 723 block; nil without one
}

// IsZero reports whether nothing is needed.
func (n Need) IsZero() bool { return n.Digest == "" }

// Env is an environment as a process uses it.
type Env struct {
	Dir     string   // the folder that has it
	Program string   // what runs the script
	Args    []string // of the program, before the script
	Vars    []string // environment variables that the process needs, as KEY=VALUE
}

// dir is the folder of the project: where the file is that declares the dependencies.
func (n Need) dir() string { return filepath.Dir(n.File) }

// noPython is a file in an environment whose command has ended and made no bin/python: the tool's interpreter runs the
// script. Without the file, an environment that has no bin/python is not whole.
const noPython = ".orla-no-python"

// env returns the environment for n in a folder.
func (n Need) env(dir string) Env {
	e := Env{Dir: dir, Program: n.source.Interpreter}
	switch n.source.Language {
	case Python:
		if len(n.source.Command) == 0 || !exists(filepath.Join(dir, noPython)) {
			e.Program = filepath.Join(dir, "bin", "python")
		}
	case Node:
		e.Args = []string{"--import", (&url.URL{Scheme: "file", Path: filepath.Join(dir, resolver)}).String()}
		e.Vars = []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}
	}
	return e
}

// whole reports whether everything is there that is needed to start a process. An interpreter that the
// environment links to may have been removed from the machine.
func (e Env) whole() bool {
	if _, err := os.Stat(e.Program); err != nil {
		return false
	}
	return exists(e.Dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// format is a part of each digest. It changes when environments are built in another way.
const format = "orla environment 1"

// digestOf returns the digest of a need whose files have the given sums, by their names.
func digestOf(s Source, files []summed) (string, error) {
	program, err := filepath.EvalSymlinks(s.Interpreter)
	if err != nil {
		return "", fmt.Errorf("the interpreter of %s: %w", s.Script, err)
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", fmt.Errorf("the interpreter of %s: %w", s.Script, err)
	}
	sum := sha256.New()
	add := func(parts ...string) { // so that no two lists of parts have the same digest
		for _, part := range parts {
			_, _ = fmt.Fprintf(sum, "%d:%s\n", len(part), part) // a hash takes everything
		}
	}
	add(format, runtime.GOOS, runtime.GOARCH, string(s.Language))
	add(program, fmt.Sprint(info.Size()), info.ModTime().UTC().String())
	add(s.Command...)
	if s.NoScripts {
		add("no scripts, careful")
	}
	if s.Package != "" {
		add("package", s.Package)
	}
	for _, f := range files {
		add(f.name, string(f.sum[:]))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// summed is a file with the digest of what counts of its content.
type summed struct {
	name string
	sum  [sha256.Size]byte
}

// isFolder reports whether a path is that of a folder.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
