package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// maxFaulty is of how many documents of a file the faults are listed.
const maxFaulty = 100

// resources reads the resources that a regular file declares, path being where
// it is without links. It reports whether the file is one of resources, or
// cannot be read, rather than of somebody's data.
func (w *walker) resources(at, path string) bool {
	c, err := w.load.Load(at, path)
	data := c.Data
	switch {
	case err != nil:
		w.unreadable(at, path, err)
		return true
	case c.Size > 0:
		return w.tooLarge(at, c)
	case data == nil:
		return false
	case c.Late:
		w.rulesOf(at, path)
		return false
	}
	list, unsure, err := resource.Parse(resource.File{Display: at, Dir: filepath.Dir(path)}, data)
	if len(list) == 0 && err == nil {
		w.load.Remember(c)
	}
	faulty, denies := 0, false
	for i, d := range list {
		if d.Doc.Err() != nil {
			faulty++
		}
		if faulty <= maxFaulty || d.Doc.Err() == nil {
			w.declared(d, fmt.Sprintf("%s#%d", path, i))
		} else {
			denies = denies || d.Rule
		}
	}
	if faulty > maxFaulty {
		w.partly(at, denies, yamldoc.Faults{{File: at, Line: 1, Column: 1, Msg: fmt.Sprintf("%d more documents of this file are at fault", faulty-maxFaulty)}})
	}
	if err != nil {
		w.partly(at, unsure, err)
	}
	if slices.ContainsFunc(list, func(d *resource.Declaration) bool { return d.Secret.Data != nil }) {
		w.checkMode(at, path)
	}
	return len(list) > 0 || err != nil
}

// declared keeps what a document declares, or says why it is not served. id is
// the document's own, however often its file is found.
func (w *walker) declared(d *resource.Declaration, id string) {
	for _, warning := range d.Warnings {
		w.problem(d.File.Display, d.Name, manifest.Warning, warning)
	}
	at := location{entry: d.File.Display, id: id, named: d.Doc.At("metadata.name", "")}
	if d.Tool.Runtime.Generated || d.Tool.Kind == manifest.Cli && d.Tool.Path != "" {
		w.servers = append(w.servers, d.Tool)
	}
	switch err := d.Doc.Err(); {
	case d.Rule:
		w.denied(d.File.Display, err)
	case err != nil:
		w.problem(d.File.Display, d.Name, manifest.Fault, err)
	case !d.Rules.Empty():
		w.rules = append(w.rules, foundRules{at, d.Rules})
	case d.Secret.Data != nil:
		w.secrets = append(w.secrets, foundSecret{at, d.Secret})
	case d.Name != "":
		t := d.Tool // d has the whole document
		w.found = append(w.found, found{location: at, tool: &t, server: d.NoServer})
	}
}

// checkMode warns of a file of secrets that others can read.
func (w *walker) checkMode(at, path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		w.warn(at, "holds secrets, and others than its owner have rights to it (mode %04o): chmod 600", info.Mode().Perm())
	}
}

// leaveToServers leaves to the McpServers that were found what they run: a program of
// theirs is no tool beside it, executable or not, and does not become one while
// their description is at fault.
func (w *walker) leaveToServers() {
	theirs := map[string]bool{}
	for _, server := range w.servers {
		if strings.Contains(server.Path, "/") { // else it is a name
			theirs[regularfile.Resolve(server.Dir, server.Path)] = true
		}
		for _, file := range server.Run.Args {
			theirs[regularfile.Resolve(server.Dir, file)] = true
		}
	}
	w.found = slices.DeleteFunc(w.found, func(f found) bool { return f.tool.Kind == manifest.Simple && theirs[f.tool.Path] })
	for _, file := range w.plain {
		if !theirs[file.path] {
			w.warn(file.at, "is not executable: chmod +x %s", file.at)
		}
	}
	w.plain, w.servers = nil, nil
}
