package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
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
func (w *walker) declared(d *resource.Declaration, id string) { w.declares(declarationOf(d), id) }

// declaration is what is kept of a document while tools are searched for: a resource.Declaration has all of it.
type declaration struct {
	display  string // of its file
	name     string // of the tool; "" where it is none, or not known
	named    yamldoc.Fault
	tool     manifest.Tool
	noServer yamldoc.Fault
	rules    manifest.Rules
	secret   secret.Secret
	rule     bool // see resource.Declaration
	err      error
	warnings []error
}

func declarationOf(d *resource.Declaration) *declaration {
	return &declaration{
		display: d.File.Display, name: d.Name, named: d.Doc.At("metadata.name", ""),
		tool: d.Tool, noServer: d.NoServer, rules: d.Rules, secret: d.Secret, rule: d.Rule, err: d.Doc.Err(), warnings: d.Warnings,
	}
}

func (w *walker) declares(d *declaration, id string) {
	for _, warning := range d.warnings {
		w.problem(d.display, d.name, manifest.Warning, warning)
	}
	at := location{entry: d.display, id: id, named: d.named}
	if d.tool.Runtime.Generated || d.tool.Kind == manifest.Cli && d.tool.Path != "" {
		w.servers = append(w.servers, d.tool)
	}
	switch {
	case d.rule:
		w.denied(d.display, d.err)
	case d.err != nil:
		w.problem(d.display, d.name, manifest.Fault, d.err)
	case !d.rules.Empty():
		w.rules = append(w.rules, foundRules{at, d.rules})
	case d.secret.Data != nil:
		w.secrets = append(w.secrets, foundSecret{at, d.secret})
	case d.name != "":
		w.found = append(w.found, found{location: at, tool: &d.tool, server: d.noServer})
	}
}

// checkMode warns of a file of secrets that others can read.
func (w *walker) checkMode(at, path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		w.warn(at, "holds secrets, and others than its owner have rights to it (mode %04o): chmod 600", info.Mode().Perm())
	}
}

// leaveToServers removes the programs of the McpServers that were found from the tools. Such a program is not a
// tool, executable or not, and does not become one if the description of its server is faulty.
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
