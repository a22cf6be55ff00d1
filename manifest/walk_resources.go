package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/regularfile"
	"github.com/orla-project/orla/internal/yamldoc"
)

// resources reads the resources that a regular file declares, path being where
// it is without links. It reports whether the file is one of resources, or
// cannot be read, rather than of somebody's data.
func (w *walker) resources(at, path string) bool {
	c, err := declaring(path)
	data := c.data
	switch {
	case err != nil:
		w.unreadable(at, path, err)
		return true
	case data == nil:
		return false
	case c.large:
		return w.tooLarge(at, c)
	case c.late:
		w.rulesOf(at, path)
		return false
	}
	list, err := readDeclarations(file{display: at, dir: filepath.Dir(path)}, data)
	faulty, denies := 0, false
	for i, d := range list {
		if d.doc.Err() != nil {
			faulty++
		}
		if faulty <= maxFaulty || d.doc.Err() == nil {
			w.declared(d, fmt.Sprintf("%s#%d", path, i))
		} else {
			denies = denies || d.rule
		}
	}
	if faulty > maxFaulty {
		w.partly(at, denies, yamldoc.Faults{{File: at, Line: 1, Column: 1, Msg: fmt.Sprintf("%d more documents of this file are at fault", faulty-maxFaulty)}})
	}
	if err != nil {
		w.partly(at, mentionsRule(data), err)
	}
	if slices.ContainsFunc(list, func(d *declaration) bool { return d.secret.Data != nil }) {
		w.checkMode(at, path)
	}
	return len(list) > 0 || err != nil
}

// declared keeps what a document declares, or says why it is not served. id is
// the document's own, however often its file is found.
func (w *walker) declared(d *declaration, id string) {
	for _, warning := range d.warnings {
		w.problem(d.file.display, d.name, Warning, warning)
	}
	at := place{entry: d.file.display, id: id, named: d.doc.At("metadata.name", "")}
	if d.tool.Runtime.Generated || d.tool.Kind == Cli && d.tool.Path != "" {
		w.servers = append(w.servers, d.tool)
	}
	switch err := d.doc.Err(); {
	case d.rule:
		w.denied(d.file.display, err)
	case err != nil:
		w.problem(d.file.display, d.name, Fault, err)
	case d.secret.Data != nil:
		w.secrets = append(w.secrets, foundSecret{at, d.secret})
	case d.name != "":
		w.found = append(w.found, found{place: at, tool: d.tool, server: d.server})
	}
}

// checkMode warns of a file of secrets that others can read.
func (w *walker) checkMode(at, path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		w.warn(at, "holds secrets, and others than its owner have rights to it (mode %04o): chmod 600", info.Mode().Perm())
	}
}

// settle leaves to the McpServers that were found what they run: a program of
// theirs is no tool beside it, executable or not, and does not become one while
// their description is at fault.
func (w *walker) settle() {
	theirs := map[string]bool{}
	for _, server := range w.servers {
		if strings.Contains(server.Path, "/") { // else it is a name
			theirs[regularfile.Resolve(server.Dir, server.Path)] = true
		}
		for _, file := range server.Run.Args {
			theirs[regularfile.Resolve(server.Dir, file)] = true
		}
	}
	w.found = slices.DeleteFunc(w.found, func(f found) bool { return f.tool.Kind == Simple && theirs[f.tool.Path] })
	for _, file := range w.plain {
		if !theirs[file.path] {
			w.warn(file.at, "is not executable: chmod +x %s", file.at)
		}
	}
	w.plain, w.servers = nil, nil
}
