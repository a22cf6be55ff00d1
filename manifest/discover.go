package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Options says where to look for tools.
type Options struct {
	// ToolsDir is the project's folder. That it is absent or empty is a
	// Warning. If "", only UserDir is searched.
	ToolsDir string
	// UserDir holds the user's own tools; a tool of the same name in ToolsDir
	// hides the user's. That it is absent is no problem. If "", there is none.
	UserDir string
}

// Discover finds the tools below the folders of opts (SPEC A2). Whatever is
// skipped has a Problem, except what is plainly no tool: hidden entries, the
// folders of package managers, and data files. It starts no process, opens no
// FIFO or device, and reads at most 64 KiB of an executable.
func Discover(opts Options) Result {
	c := catalog{names: map[string]found{}}
	w := newWalker()
	if dir := opts.ToolsDir; dir != "" {
		if absent(dir) {
			w.warn(dir, "does not exist; make the folder and put an executable into it to serve it as a tool")
		} else {
			w.tree(dir)
			w.warnIfEmpty(dir)
		}
		c.add(w, nil)
	}
	if dir := opts.UserDir; dir != "" && !absent(dir) {
		project := c.names
		c.names = map[string]found{}
		if _, err := os.Stat(dir); err != nil {
			// Another user's home is nothing to be mended.
			w.problem(dir, "", Warning, readError(err))
		} else {
			w.tree(dir)
		}
		c.add(w, project)
	}
	c.problems = append(c.problems, w.problems...)
	return c.result()
}

// absent reports whether there is nothing at dir: neither it nor, it may be, the
// folder that it would be in.
func absent(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// warnIfEmpty warns if nothing at all has been found.
func (w *walker) warnIfEmpty(dir string) {
	if len(w.found)+len(w.problems) == 0 {
		w.warn(dir, "holds no tools; put an executable into it (chmod +x) to serve it")
	}
}

// Validate checks what stands at path: a folder of tools, a package, a
// tool.yaml or orla-tool.json, one executable, or the NAME.tool.yaml beside it. It finds what
// Discover would find there.
func Validate(path string) Result {
	c := catalog{names: map[string]found{}}
	w := newWalker()
	info, err := os.Stat(path)
	switch {
	case err != nil:
		w.problem(path, "", Fault, readError(err))
	case info.IsDir():
		w.rootHasVersions = true
		w.tree(path)
		w.warnIfEmpty(path)
	case !info.Mode().IsRegular():
		w.problem(path, "", Fault, fmt.Errorf("is neither a folder nor a file but %s", kindOf(info.Mode())))
	default:
		w.single(path)
	}
	c.add(w, nil)
	c.problems = append(c.problems, w.problems...)
	return c.result()
}

// found is a tool and the entry that it was found as.
type found struct {
	tool  Tool
	entry string
}

// catalog gives each name to one tool.
type catalog struct {
	names    map[string]found
	tools    []Tool
	problems []Problem
}

// add takes what w has found since the last time, in path order. The first of
// a name serves; another is a conflict, unless hidden already has the name, as
// the project's tools hide the user's (SPEC A4). One file that is found in two
// ways is no conflict with itself.
func (c *catalog) add(w *walker, hidden map[string]found) {
	for _, f := range w.found {
		if _, ok := hidden[f.tool.Name]; ok {
			continue
		}
		first, taken := c.names[f.tool.Name]
		switch {
		case !taken:
			c.names[f.tool.Name] = f
			c.tools = append(c.tools, f.tool)
		case first.tool.Path != f.tool.Path || first.tool.Kind != f.tool.Kind:
			c.problems = append(c.problems, Problem{
				Path: f.entry, Tool: f.tool.Name, Severity: Fault,
				Err: fmt.Errorf("conflict: the tool %q is served from %s; rename one of the two", f.tool.Name, first.entry),
			})
		}
	}
	w.found = nil
}

func (c *catalog) result() Result {
	slices.SortFunc(c.tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return Result{Tools: c.tools, Problems: c.problems}
}

// single looks at one file, as if nothing else were in its folder but what
// describes it.
func (w *walker) single(file string) {
	folder, base := filepath.Dir(file), filepath.Base(file)
	root, err := resolveRoot(folder)
	if err != nil {
		w.problem(file, "", Fault, err)
		return
	}
	w.root = root
	if base == manifestFile || base == capsuleFile {
		w.packageAt(root, folder)
		return
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		w.problem(file, "", Fault, readError(err))
		return
	}
	w.only = func(entry string) bool {
		if target, ok := strings.CutSuffix(base, sidecarSuffix); ok {
			return entry == base || entry == target || stem(entry) == target
		}
		return entry == base || slices.Contains(sidecarsOf(base, func(string) bool { return true }), entry)
	}
	before := len(w.found) + len(w.problems)
	w.entries(root, folder, entries, 0)
	if len(w.found)+len(w.problems) == before {
		why := "is not executable: chmod +x " + file
		if isBackup(base) {
			why = "is an editor's backup by its name, and is never served"
		}
		if strings.HasPrefix(base, ".") {
			why = "is hidden, as its name begins with a dot, and is never served"
		}
		w.problem(file, "", Fault, errors.New(why))
	}
}
