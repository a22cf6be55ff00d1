package toolfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// The files that make a folder a package.
const (
	ManifestFile = "tool.yaml"
	CapsuleFile  = "orla-tool.json" // RFC 2
)

// maxManifest is one byte more than is ever decoded, so that a longer file is
// seen to be longer without being read.
const maxManifest = yamldoc.MaxFile + 1

// Package is what the files of a package say, whatever else there is on this machine.
type Package struct {
	tool        manifest.Tool        // with the interpreter that was there when the files were read
	interpreter manifest.Interpreter // as the entrypoint names it
	err         error                // what is wrong with its tool.yaml
}

// Err returns what is wrong with the description of the package.
func (p *Package) Err() error { return p.err }

// Entrypoint is the path of the entrypoint, without links.
func (p *Package) Entrypoint() string { return p.tool.Path }

// Tool makes the Tool, for which resolve looks its interpreter up. ok is false if that is not there: whoever reads
// the package again learns what follows. The Tool must not be changed: the next call may return it again.
func (p *Package) Tool(resolve func(manifest.Interpreter) error) (t *manifest.Tool, ok bool) {
	t = &p.tool
	if i := besideEntrypoint(p.interpreter, t, t.Path); !isSame(i, t.Interpreter) {
		t = new(p.tool)
		t.Interpreter = i
	}
	return t, find(t, resolve) == nil
}

// isSame reports whether two interpreters are one.
func isSame(a, b manifest.Interpreter) bool {
	return a.Name == b.Name && a.Path == b.Path && a.Local == b.Local && slices.Equal(a.Args, b.Args) && slices.Equal(a.Env, b.Env)
}

// besideEntrypoint returns the interpreter of a package's entrypoint, which is at file.
func besideEntrypoint(i manifest.Interpreter, t *manifest.Tool, file string) manifest.Interpreter {
	return beside(i, !t.Isolation.Isolated(), filepath.Dir(file), t.Dir)
}

// find looks the interpreter of a tool up, by resolve unless that is nil or the tool has a PATH of its own.
func find(t *manifest.Tool, resolve func(manifest.Interpreter) error) error {
	if _, own := t.Run.Env["PATH"]; !own && resolve != nil {
		return resolve(t.Interpreter)
	}
	_, err := t.ResolveInterpreter()
	return err
}

// ReadPackage reads the package in dir, an absolute path without links, as its
// file called name describes it; display is that file for messages. resolve looks
// its interpreter up; if nil, PATH says where it is. The tool's name is filled in even if there is an error, where
// it is known. lasts is nil unless the package would be read in the same way again, as
// long as name and the entrypoint are not changed and are not links: nothing else was
// read, and nothing is wrong with the entrypoint.
func ReadPackage(dir, name, display string, resolve func(manifest.Interpreter) error) (t manifest.Tool, lasts *Package, warnings []error, err error) {
	file, err := regularfile.ResolveBelow(dir, name)
	if err != nil {
		return manifest.Tool{}, nil, nil, regularfile.ReadError(err)
	}
	if !regularfile.Within(dir, file) {
		return manifest.Tool{}, nil, nil, errors.New("is a link that leaves the package")
	}
	data, err := regularfile.Read(file, maxManifest)
	if err != nil {
		return manifest.Tool{}, nil, nil, err
	}
	parse := parseToolYAML
	if name == CapsuleFile {
		parse = parseCapsuleJSON
		if err := yamldoc.NotJSON(display, data); err != nil {
			return manifest.Tool{}, nil, nil, err
		}
	}
	t, d, entrypoint := parse(display, data)
	t.Dir = dir
	if entrypoint != "" {
		lasts = findEntrypoint(&d, &t, entrypoint, resolve)
	}
	d.CheckWatched(dir)
	t.Runtime.HotLoad.Outside = d.WatchedOutside(dir)
	looked := d.Runtime.Mode == manifest.Capsule && !slices.Equal(d.Runtime.HotLoad.Watch, keys.RuntimeDefaults().HotLoad.Watch) // by CheckWatched
	err = d.Doc.Err()
	if lasts == nil || looked || len(d.Warnings) > 0 {
		return t, nil, d.Warnings, err
	}
	lasts.tool, lasts.err = t, err
	return t, lasts, nil, err
}

// parseToolYAML reads a tool.yaml as far as that goes without looking at the
// other files of the package. The faults are in the description's doc.
func parseToolYAML(display string, data []byte) (t manifest.Tool, d keys.Description, entrypoint string) {
	written := toolYAML{Runtime: keys.RuntimeDefaults()}
	// The error is the doc's, which more faults are added to.
	doc, _ := yamldoc.Decode(display, data, &written, yamldoc.Options{})
	d = keys.Description{Doc: doc, MCP: written.MCP, Runtime: written.Runtime}
	t = manifest.Tool{Source: display}
	entrypoint = identify(&d, &t, written.Name, written.Version, written.Description, written.Entrypoint)
	d.Fill(&t)
	t.Requires = written.requires()
	return t, d, entrypoint
}

// identify checks what says which tool it is and puts it into t. It returns
// the entrypoint, or "" if that cannot be looked for.
func identify(d *keys.Description, t *manifest.Tool, name, version, text, entrypoint string) string {
	t.Version, t.Description = version, text
	if manifest.ValidName(name) {
		t.Name = name
	} else if d.Doc.Has("name") {
		d.Doc.Faultf("name", "must be 1 to %d of A-Z a-z 0-9 _ . and -, got %q", manifest.MaxName, name)
	}
	if d.Doc.Has("version") && !manifest.ValidVersion(version) {
		d.Doc.Faultf("version", "must be a SemVer 2.0 version such as 1.2.3, got %q", version)
	}
	if d.Doc.Has("description") && strings.TrimSpace(text) == "" {
		d.Doc.Faultf("description", "must not be empty: models choose tools by it")
	}
	if d.Runtime.IsolationMode == manifest.IsolationKubernetes && d.Runtime.Mode == manifest.Capsule {
		if path.IsAbs(entrypoint) && path.Clean(entrypoint) == entrypoint {
			t.Path = entrypoint
		} else if d.Doc.Has("entrypoint") {
			d.Doc.Faultf("entrypoint", "must be an absolute path in the image with isolation_mode kubernetes, got %q: a Pod has no files of this package; "+
				"build an image that has them, and name the path there, such as /app/%s", entrypoint, path.Base(entrypoint))
		}
		return ""
	}
	if d.Doc.Has("entrypoint") && !filepath.IsLocal(filepath.FromSlash(entrypoint)) {
		d.Doc.Faultf("entrypoint", "must be a relative path inside the package, got %q", entrypoint)
		return ""
	}
	return entrypoint
}

// nearestFile returns the name of the file of a folder that a wrong path in it was most likely meant for, or "".
func nearestFile(wrong string) string {
	entries, _ := os.ReadDir(filepath.Dir(wrong)) // without them, nothing is suggested
	var names []string
	for _, e := range entries[:min(len(entries), 1000)] {
		if e.Type().IsRegular() && e.Name() != "tool.yaml" {
			names = append(names, e.Name())
		}
	}
	return yamldoc.Nearest(filepath.Base(wrong), names)
}

// findEntrypoint finds the file to run and what runs it. Only of a script does it return what
// it has read, without the tool.
func findEntrypoint(d *keys.Description, t *manifest.Tool, entrypoint string, resolve func(manifest.Interpreter) error) (read *Package) {
	wrong := func(format string, args ...any) { d.Doc.Faultf("entrypoint", format, args...) }
	if at := filepath.Join(t.Dir, filepath.FromSlash(entrypoint)); isVenvPython(entrypoint) && regularfile.IsProgram(at) {
		t.Path = at // which is a link to the Python of the machine, and works as itself alone
		if len(d.Runtime.Args) == 0 {
			wrong("%q needs the name of a program; write runtime: {args: [main.py]} for main.py", entrypoint)
		}
		return nil
	}
	file, err := regularfile.ResolveBelow(t.Dir, filepath.FromSlash(entrypoint))
	if errors.Is(err, fs.ErrNotExist) {
		more := ""
		if strings.Contains(strings.TrimSpace(entrypoint), " ") {
			more = "; entrypoint is one file, and arguments for it belong in runtime.args"
		} else if near := nearestFile(filepath.Join(t.Dir, filepath.FromSlash(entrypoint))); near != "" {
			more = fmt.Sprintf("; did you mean %q?", path.Join(path.Dir(entrypoint), near))
		} else if isVenvPython(entrypoint) {
			more = "; make it there: python3 -m venv " + path.Dir(path.Dir(entrypoint))
		}
		wrong("%q does not exist in the package%s", entrypoint, more)
		return nil
	} else if err != nil {
		wrong("%q %v", entrypoint, regularfile.ReadError(err))
		return nil
	}
	if !regularfile.Within(t.Dir, file) {
		wrong("%q is a link that leaves the package", entrypoint)
		return nil
	}
	info, err := os.Lstat(file)
	if err != nil {
		wrong("%q %v", entrypoint, regularfile.ReadError(err))
		return nil
	}
	if !info.Mode().IsRegular() {
		wrong("%q is not a regular file but %s", entrypoint, regularfile.KindOf(info.Mode()))
		return nil
	}
	// The description of a package is its tool.yaml, so a block in the
	// entrypoint is a comment like any other, broken or not.
	head, _, err := regularfile.Head(file, firstRead)
	var interpreter manifest.Interpreter
	shebang := false
	if err == nil {
		interpreter, shebang, err = parseShebang(head)
	}
	if w := windowsLines(interpreter, file, head); w != nil {
		d.Warnings = append(d.Warnings, d.Doc.At("entrypoint", "%q %v", entrypoint, w))
	}
	if f := foreignTo(runtime.GOOS, runtime.GOARCH, head, info.Size()); f != nil && !t.Isolation.Isolated() {
		d.Warnings = append(d.Warnings, d.Doc.At("entrypoint", "%q %v", entrypoint, f))
	}
	switch {
	case err != nil:
		wrong("%q: %v", entrypoint, err)
	case !shebang && info.Mode()&0o111 == 0:
		wrong("%q is neither executable nor a script that names its interpreter: chmod +x it, or begin it with a line such as #!/usr/bin/env python3", entrypoint)
	case !shebang && cannotRun(file, head) != nil:
		wrong("%q %v", entrypoint, cannotRun(file, head))
	default:
		if shebang {
			read = &Package{interpreter: interpreter}
		}
		interpreter = besideEntrypoint(interpreter, t, file)
		t.Interpreter = interpreter
		warning, err := keys.MissingInterpreter(t.Isolation, find(t, resolve))
		if warning != nil {
			d.Warnings = append(d.Warnings, d.Doc.At("entrypoint", "%q: %v", entrypoint, warning))
		}
		if err != nil {
			wrong("%q: %w", entrypoint, err)
			read = nil
		}
	}
	t.Path, t.Interpreter = file, interpreter
	return read
}

// isVenvPython reports whether a path in a package is that of the Python of a .venv there.
func isVenvPython(entrypoint string) bool {
	folder, name := path.Split(path.Clean(entrypoint))
	return (folder == ".venv/bin/" || folder == "venv/bin/") && strings.HasPrefix(name, "python")
}
