// Package discover finds tools: it walks through folders, follows links that stay
// inside, gives each name to one tool, and reports why an entry is skipped.
package discover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Options says where to look for tools.
type Options struct {
	// ToolsDir is the project's folder. That it is absent or empty is a
	// Warning. If "", only UserDir is searched.
	ToolsDir string
	// UserDir holds the user's own tools; a tool of the same name in ToolsDir
	// hides the user's. It may be absent. If "", there is none.
	UserDir string
	// Stopped reports why the search has to end, as the Err of a context does. A
	// search that was stopped has a Problem that denies every call. If nil, it goes
	// to its end.
	Stopped func() error
	// Seen is what earlier searches have seen. If nil, all files are read.
	Seen *Seen
	// Cluster has the custom resources of a cluster. If it is not nil, ToolsDir may be absent or empty.
	Cluster *Cluster
	// Order orders the folders of versions in a folder of a package, so that the first one serves that can. dir is
	// its absolute path without links. They come the highest first. If nil, they stay so.
	Order func(dir string, versions []string)
}

// Tools finds the tools below the folders of opts (SPEC A2). Whatever is
// skipped has a Problem, except what is plainly no tool: hidden entries, the
// folders of package managers, and data files. It starts no process, opens no
// FIFO or device, and reads at most 64 KiB of an executable.
func Tools(opts Options) manifest.Result {
	c := newCatalog()
	w := newWalker()
	w.order = opts.Order
	w.load.Seen, w.seen, w.known = opts.Seen.ofDocuments(), opts.Seen, opts.Seen.known()
	w.keeps = sights{make(map[string]seenTool, len(w.known.tools)), make(map[string]*seenPackage, len(w.known.packages))}
	w.expect(len(w.known.tools), len(w.known.packages))
	if opts.Stopped != nil {
		w.load.Stopped = opts.Stopped
	}
	if dir := opts.ToolsDir; dir != "" {
		switch {
		case !absent(dir):
			w.tree(dir)
			if opts.Cluster == nil {
				w.warnIfEmpty(dir)
			}
		case opts.Cluster == nil:
			w.warn(dir, "does not exist; make the folder and put an executable into it to serve it as a tool")
		}
		w.cluster(opts.Cluster)
		c.add(w, nil)
	}
	if dir := opts.UserDir; dir != "" && !absent(dir) {
		project := c.names
		c.names = map[string]*found{}
		if _, err := os.Stat(dir); err != nil {
			// Another user's home is nothing to be fixed.
			w.problem(dir, "", manifest.Warning, regularfile.ReadError(err))
		} else {
			w.tree(dir)
		}
		c.add(w, project)
	}
	c.checkServers()
	if err := w.load.Stopped(); err == nil {
		opts.Seen.replace(w.keeps)
	} else {
		w.denied(cmp.Or(opts.ToolsDir, opts.UserDir), unknown(fmt.Errorf("is not searched to its end: %w", err)))
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
	if len(w.found)+len(w.secrets)+len(w.rules)+len(w.problems) == 0 {
		w.warn(dir, "holds no tools; put an executable into it (chmod +x) to serve it")
	}
}

// Validate checks what stands at path: a folder of tools, a package, a
// tool.yaml or orla-tool.json, a file of resources, one executable, or the
// NAME.tool.yaml beside it. It finds what Tools would find there.
func Validate(path string) manifest.Result {
	c := newCatalog()
	w := newWalker()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.problem(path, "", manifest.Fault, errors.New("does not exist"))
	case err != nil:
		w.problem(path, "", manifest.Fault, regularfile.ReadError(err))
	case info.IsDir():
		w.rootHasVersions = true
		w.tree(path)
		w.warnIfEmpty(path)
	case !info.Mode().IsRegular():
		w.problem(path, "", manifest.Fault, fmt.Errorf("is neither a folder nor a file but %s", regularfile.KindOf(info.Mode())))
	default:
		w.single(path)
	}
	c.add(w, nil)
	if w.only == nil {
		c.checkServers()
	}
	c.problems = append(c.problems, w.problems...)
	return c.result()
}

// single looks at one file, as if nothing else were in its folder but what
// describes it.
func (w *walker) single(file string) {
	folder, base := filepath.Dir(file), filepath.Base(file)
	root, err := resolveRoot(folder)
	if err != nil {
		w.problem(file, "", manifest.Fault, err)
		return
	}
	w.root = root
	if base == toolfile.ManifestFile || base == toolfile.CapsuleFile {
		w.packageAt(root, folder)
		return
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		w.problem(file, "", manifest.Fault, regularfile.ReadError(err))
		return
	}
	w.only = func(entry string) bool {
		if target, ok := strings.CutSuffix(base, toolfile.SidecarSuffix); ok {
			return entry == base || entry == target || toolfile.Stem(entry) == target
		}
		return entry == base || slices.Contains(toolfile.SidecarsOf(base, func(string) bool { return true }), entry)
	}
	before := len(w.found) + len(w.secrets) + len(w.rules) + len(w.problems)
	w.entries(root, folder, entries, 0)
	w.leaveToServers()
	if len(w.found)+len(w.secrets)+len(w.rules)+len(w.problems) == before {
		why := "is not executable: chmod +x " + file
		switch filepath.Ext(base) {
		case ".yaml", ".yml", ".json":
			why = "declares no resource: apiVersion: " + resource.APIVersion + " and a kind would make it one"
		}
		if isBackup(base) {
			why = "is an editor's backup by its name, and is never served"
		}
		if strings.HasPrefix(base, ".") {
			why = "is hidden, as its name begins with a dot, and is never served"
		}
		w.problem(file, "", manifest.Fault, errors.New(why))
	}
}
