package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/regularfile"
)

// sidecarSuffix ends the name of the file that describes the executable beside
// it (SPEC A6).
const sidecarSuffix = ".tool.yaml"

// executable is a file to be served as a simple tool.
type executable struct {
	base     string   // its name in the folder
	path     string   // absolute, links resolved
	display  string   // for messages
	folder   string   // absolute, links resolved: where it was found
	dir      string   // absolute: the working directory of its calls
	sidecars []string // the names of the files that describe it
	misnamed string   // a file that looks as if it were to; "" for none
}

// sidecarsOf picks those of a folder's sidecars that describe an executable:
// report.py is described by report.tool.yaml or by report.py.tool.yaml.
func sidecarsOf(base string, has func(string) bool) []string {
	var list []string
	for _, name := range []string{base + sidecarSuffix, stem(base) + sidecarSuffix} {
		if has(name) && (len(list) == 0 || list[0] != name) {
			list = append(list, name)
		}
	}
	return list
}

// misnamedSidecar finds what its author takes for a sidecar. Nobody must find out
// later that a tool does not live where its file says (SPEC-TOOLS 7).
func misnamedSidecar(base string, has func(string) bool) string {
	for _, of := range [...]string{base, stem(base)} {
		for _, end := range [...]string{".tool.yml", ".tool.json", ".Tool.yaml", ".tool.YAML"} {
			if has(of + end) {
				return of + end
			}
		}
	}
	return ""
}

// read makes a Tool of an executable. The name is filled in even if there is
// an error. resolve looks an interpreter up.
func (e executable) read(resolve func(Interpreter) error) (t Tool, warnings []error, err error) {
	name, changed := nameOf(e.base)
	t = Tool{
		Name:        name,
		Kind:        Simple,
		Path:        e.path,
		Dir:         e.dir,
		Source:      e.display,
		InputSchema: []byte(anyObject),
		Run:         Run{Arguments: ArgumentsBoth, Output: OutputText},
	}
	if changed {
		warnings = append(warnings, fmt.Errorf("is served as %q: the name %q is longer than %d characters or has some other than A-Z a-z 0-9 _ . and -", name, stem(e.base), maxName))
	}
	h, err := readHead(e.path, e.display)
	if err != nil {
		return t, warnings, err
	}
	if h.stray > 0 && len(e.sidecars) == 0 {
		warnings = append(warnings, fmt.Errorf("line %d looks like a metadata block and is not read: a block stands above all code, and opens with \"# /// tool\" (or //, --, ;) at the left edge", h.stray))
	}
	more, err := e.describe(&t, h.block)
	t.Interpreter = beside(h.interpreter, !t.Isolation.Isolated(), filepath.Dir(e.path), e.dir)
	_, own := t.Run.Env["PATH"]
	find := resolve
	if own {
		find = func(Interpreter) error { _, err := t.ResolveInterpreter(); return err }
	}
	absent, missing := missingInterpreter(t.Isolation, find(t.Interpreter))
	if absent != nil {
		more = append(more, absent)
	}
	return t, append(warnings, more...), errors.Join(missing, err)
}

// describe reads the block or the sidecar, whichever there is.
func (e executable) describe(t *Tool, b *block) (warnings []error, err error) {
	switch {
	case b != nil && len(e.sidecars) > 0:
		return nil, fmt.Errorf("is described twice, by the block on its line %d and by %s; keep one", b.line, e.sidecars[0])
	case e.misnamed != "":
		return nil, fmt.Errorf("%s is not read, and what it says would have no effect: call it %s", e.misnamed, stem(e.base)+sidecarSuffix)
	case len(e.sidecars) > 1:
		return nil, fmt.Errorf("is described twice, by %s; keep one", strings.Join(e.sidecars, " and "))
	case b != nil:
		return applyBlock(t, e.display, b.body, b.position)
	case len(e.sidecars) == 0:
		return nil, nil
	}
	sidecar := e.sidecars[0]
	t.Source = filepath.Join(filepath.Dir(e.display), sidecar)
	data, err := readSidecar(e, sidecar)
	if err != nil {
		// Not being readable is a fault of a description, so the cause ends here.
		return nil, fmt.Errorf("%s: %v", t.Source, err)
	}
	return applyBlock(t, t.Source, data, nil)
}

// readSidecar reads a sidecar. It stands beside the executable as found, not
// beside what a link points to, and may be a link itself that stays in dir.
func readSidecar(e executable, name string) ([]byte, error) {
	file, err := filepath.EvalSymlinks(filepath.Join(e.folder, name))
	if err != nil {
		return nil, regularfile.ReadError(err)
	}
	if !regularfile.Within(e.dir, file) {
		return nil, errors.New("is a link that leaves the folder")
	}
	return regularfile.Read(file, maxManifest)
}

// stem is a file name without its last extension.
func stem(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// nameOf gives the name of the tool in a file (SPEC A3), and whether that is
// another than the file's own because MCP would not allow it.
func nameOf(file string) (name string, changed bool) {
	own := stem(file)
	name = strings.Map(func(c rune) rune {
		if NotInName(c) {
			return '_'
		}
		return c
	}, own)
	name = name[:min(len(name), maxName)]
	return name, name != own
}
