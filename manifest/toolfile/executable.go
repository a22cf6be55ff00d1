package toolfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// SidecarSuffix ends the name of the file that describes the executable beside
// it (SPEC A6).
const SidecarSuffix = ".tool.yaml"

// NearlySidecar is, in lower case, in the name of every sidecar, and of what MisnamedSidecar finds.
const NearlySidecar = ".tool."

// Executable is a file to be served as a simple tool.
type Executable struct {
	Base     string   // its name in the folder
	Path     string   // absolute, links resolved
	Display  string   // for messages
	Folder   string   // absolute, links resolved: where it was found
	Dir      string   // absolute: the working directory of its calls
	Sidecars []string // the names of the files that describe it
	Misnamed string   // a file that looks as if it were to; "" for none
}

// SidecarsOf picks those of a folder's sidecars that describe an executable:
// report.py is described by report.tool.yaml or by report.py.tool.yaml.
func SidecarsOf(base string, has func(string) bool) []string {
	var list []string
	for _, name := range []string{base + SidecarSuffix, Stem(base) + SidecarSuffix} {
		if has(name) && (len(list) == 0 || list[0] != name) {
			list = append(list, name)
		}
	}
	return list
}

// MisnamedSidecar finds a file that its author may take for a sidecar: an isolation that it asks for would have no
// effect (SPEC-TOOLS 7).
func MisnamedSidecar(base string, has func(string) bool) string {
	for _, of := range [...]string{base, Stem(base)} {
		for _, end := range [...]string{".tool.yml", ".tool.json", ".Tool.yaml", ".tool.YAML"} {
			if has(of + end) {
				return of + end
			}
		}
	}
	return ""
}

// ErrModule is the error for WebAssembly that nothing describes: no system runs it by itself, and compilers make
// it executable. A resource says what it is a tool of.
var ErrModule = errors.New("is a WebAssembly module")

// Parsed is what an executable and its description say, whatever else there is on this machine.
type Parsed struct {
	of       Executable
	tool     manifest.Tool // its interpreter is as the file names it
	warnings []error
	err      error
	broken   bool // its head could not be read, or says that it cannot be run
	read     bool // its head could be read
}

// Lasts reports whether the file would be parsed in the same way again, as long as it is not changed and is the
// same Executable: nothing else was read.
func (p *Parsed) Lasts() bool {
	return p.read && len(p.of.Sidecars) == 0 && p.of.Misnamed == ""
}

// Is reports whether p was parsed for the same Executable, which no sidecar describes.
func (p *Parsed) Is(e Executable) bool {
	return len(e.Sidecars) == 0 && e.Misnamed == "" && p.of.Base == e.Base && p.of.Path == e.Path &&
		p.of.Display == e.Display && p.of.Folder == e.Folder && p.of.Dir == e.Dir
}

// Parse reads the head of an executable, and its description.
func (e Executable) Parse() *Parsed {
	p := &Parsed{of: e}
	p.tool, p.warnings, p.err = e.parse(p)
	return p
}

func (e Executable) parse(p *Parsed) (t manifest.Tool, warnings []error, err error) {
	name, changed := nameOf(e.Base)
	t = manifest.Tool{
		Name:        name,
		Kind:        manifest.Simple,
		Path:        e.Path,
		Dir:         e.Dir,
		Source:      e.Display,
		InputSchema: []byte(keys.AnyObject),
		Run:         manifest.Run{Arguments: manifest.ArgumentsBoth, Output: manifest.OutputText},
	}
	if changed {
		warnings = append(warnings, fmt.Errorf("is served as %q: the name %q %s", name, Stem(e.Base), unfit(Stem(e.Base))))
	}
	h, err := readHead(e.Path, e.Display)
	p.read = h.read
	if h.module && len(e.Sidecars) == 0 {
		return t, nil, ErrModule
	}
	if err != nil {
		p.broken = true
		return t, warnings, err
	}
	if h.windows != nil {
		warnings = append(warnings, h.windows)
	}
	if h.stray > 0 && len(e.Sidecars) == 0 {
		warnings = append(warnings, fmt.Errorf("line %d looks like a metadata block and is not read: a block stands above all code, and opens with \"# /// tool\" (or //, --, ;) at the left edge", h.stray))
	}
	more, err := e.describe(&t, h.block)
	t.Interpreter = h.interpreter
	if h.foreign != nil && !t.Isolation.Isolated() { // elsewhere may be another machine
		more = append(more, h.foreign)
	}
	return t, append(warnings, more...), err
}

// Tool returns the Tool, for which resolve looks its interpreter up. It must not be changed. The name is filled in even if there is an
// error, which is ErrModule for a file that is not an executable.
func (p *Parsed) Tool(resolve func(manifest.Interpreter) error) (t *manifest.Tool, warnings []error, err error) {
	t, warnings = &p.tool, slices.Clip(p.warnings)
	if p.broken || errors.Is(p.err, ErrModule) {
		return t, warnings, p.err
	}
	i := beside(t.Interpreter, !t.Isolation.Isolated(), filepath.Dir(p.of.Path), p.of.Dir)
	if i.Path != t.Interpreter.Path || i.Local != t.Interpreter.Local {
		with := p.tool
		with.Interpreter, t = i, &with
	}
	absent, missing := keys.MissingInterpreter(t.Isolation, find(t, resolve))
	if absent != nil {
		warnings = append(warnings, absent)
	}
	return t, warnings, errors.Join(missing, p.err)
}

// describe reads the block or the sidecar, whichever there is.
func (e Executable) describe(t *manifest.Tool, b *block) (warnings []error, err error) {
	switch {
	case b != nil && len(e.Sidecars) > 0:
		return nil, fmt.Errorf("is described twice, by the block on its line %d and by %s; keep one", b.line, e.Sidecars[0])
	case e.Misnamed != "":
		return nil, fmt.Errorf("%s is not read and has no effect; rename it to %s", e.Misnamed, Stem(e.Base)+SidecarSuffix)
	case len(e.Sidecars) > 1:
		return nil, fmt.Errorf("is described twice, by %s; keep one", strings.Join(e.Sidecars, " and "))
	case b != nil:
		return applyBlock(t, e.Display, b.body, b.position)
	case len(e.Sidecars) == 0:
		return nil, nil
	}
	sidecar := e.Sidecars[0]
	t.Source = filepath.Join(filepath.Dir(e.Display), sidecar)
	data, err := readSidecar(e, sidecar)
	if err != nil {
		// Not being readable is a fault of a description, so the cause ends here.
		return nil, fmt.Errorf("%s: %v", t.Source, err)
	}
	return applyBlock(t, t.Source, data, nil)
}

// readSidecar reads a sidecar. It is next to the executable as found, not next to the target of a link. It may be
// a link itself, which must stay in Dir.
func readSidecar(e Executable, name string) ([]byte, error) {
	file, err := filepath.EvalSymlinks(filepath.Join(e.Folder, name))
	if err != nil {
		return nil, regularfile.ReadError(err)
	}
	if !regularfile.Within(e.Dir, file) {
		return nil, errors.New("is a link that leaves the folder")
	}
	return regularfile.Read(file, maxManifest)
}

// Stem is a file name without its last extension.
func Stem(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// nameOf gives the name of the tool in a file (SPEC A3), and whether that is
// another than the file's own because MCP would not allow it.
func nameOf(file string) (name string, changed bool) {
	own := Stem(file)
	name = manifest.AllowedName(own)
	name = name[:min(len(name), manifest.MaxName)]
	return name, name != own
}

// unfit says why a tool cannot have the name own (A3).
func unfit(own string) string {
	var why []string
	if len(own) > manifest.MaxName {
		why = append(why, fmt.Sprintf("is longer than %d characters", manifest.MaxName))
	}
	if manifest.AllowedName(own) != own {
		why = append(why, "has characters other than A-Z a-z 0-9 _ . and -")
	}
	return strings.Join(why, " and ")
}
