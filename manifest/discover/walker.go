package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// maxLevels is how deep folders are searched.
const maxLevels = 64

// Skips reports whether folders with a name are not searched: those of package managers and interpreters are full of
// executables that nobody means to serve.
func Skips(folder string) bool {
	switch folder {
	case "node_modules", "__pycache__", ".venv", "venv":
		return true
	}
	return false
}

// walker goes through folders and collects what it finds, in path order: the
// entries of a folder by name, each folder where its name stands.
type walker struct {
	finds

	root string // the folder that is searched: absolute, links resolved
	// rootHasVersions: the root may itself be the NAME of NAME/VERSION/tool.yaml.
	rootHasVersions bool
	// only limits the entries of a folder that are looked at. nil: all are.
	only func(name string) bool

	load    resource.Loader // reads files that may hold resources, until it is stopped
	visited map[string]bool // folders that have been searched, absolute
	ruled   map[string]bool // folders that have been searched for governance documents alone, absolute
	links
	interpreter map[string]error
	order       func(dir string, versions []string) // of Options
	remembered
}

// links are the links to folders.
type links struct {
	linked      int          // entries of those that links lead to outside of root
	mostLinked  int          // and how many of these are searched
	folderLinks []folderLink // met below root
}

// remembered are the executables and packages that searches have read.
type remembered struct {
	seen  *Seen      // nil: nothing is remembered
	known sights     // of the searches before
	mu    sync.Mutex // guards keeps, interpreter, and calls of load.Stopped and seen.now while entries are read ahead
	keeps sights     // those that are there still, and new ones
}

// finds is what a walker has collected since it was last asked.
type finds struct {
	found    []found
	secrets  []foundSecret
	rules    []foundRules
	problems []manifest.Problem
	plain    []plainFile
	servers  []manifest.Tool // McpServers, faulty ones too; see leaveToServers
}

// plainFile is a file that looks as if it were to be run, and is not executable.
type plainFile struct {
	at   string // for messages
	path string // absolute, links resolved
}

// folderLink is a link to a folder. It is not followed for tools, as what it points
// to is found where it stands.
type folderLink struct {
	at     string // for messages
	target string // absolute, links resolved
}

func newWalker() *walker {
	return &walker{load: resource.Loader{Stopped: func() error { return nil }}, visited: map[string]bool{}, ruled: map[string]bool{}, links: links{mostLinked: maxLinked}, interpreter: map[string]error{}}
}

// expect makes room for about as many tools and packages.
func (w *walker) expect(tools, packages int) {
	w.found = make([]found, 0, tools+packages)
	w.visited = make(map[string]bool, packages)
}

func (w *walker) problem(path, tool string, severity manifest.Severity, err error) {
	w.problems = append(w.problems, manifest.Problem{Path: path, Tool: tool, Severity: severity, Err: err})
}

func (w *walker) warn(path, format string, args ...any) {
	w.problem(path, "", manifest.Warning, fmt.Errorf(format, args...))
}

// resolve looks an interpreter up, once for all the files that want it. It may be called from several goroutines.
func (w *walker) resolve(i manifest.Interpreter) error {
	key := i.Name + "\x00" + i.Path
	w.mu.Lock()
	defer w.mu.Unlock()
	err, known := w.interpreter[key]
	if !known {
		_, err = i.Resolve()
		w.interpreter[key] = err
	}
	return err
}

// resolveRoot returns the absolute path of a folder, without links.
func resolveRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", regularfile.ReadError(err)
	}
	return root, nil
}

// tree searches a folder that a user named.
func (w *walker) tree(dir string) {
	root, err := resolveRoot(dir)
	if err != nil {
		w.denied(dir, unknown(err))
		return
	}
	info, err := os.Stat(root)
	if err != nil {
		w.denied(dir, unknown(regularfile.ReadError(err)))
		return
	}
	if !info.IsDir() {
		w.problem(dir, "", manifest.Fault, errors.New("is not a folder"))
		return
	}
	w.root = root
	w.folder(root, dir, 0, &reading{})
	w.leaveToServers()
	for _, link := range w.folderLinks {
		if w.visited[link.target] {
			continue
		}
		inside := regularfile.Within(root, link.target)
		if inside {
			w.warn(link.at, "is skipped: it is a link to %s, a folder that is not searched where it stands", link.target)
		}
		w.rulesBelow(link.target, link.at, "", 0, !inside)
	}
	w.folderLinks = nil
}

// folder searches one folder, of which something may have been read: abs is its path
// without links, display the same as messages have it.
func (w *walker) folder(abs, display string, level int, r *reading) {
	if w.visited[abs] || w.load.Stopped() != nil {
		return
	}
	w.visited[abs] = true
	if level > maxLevels {
		w.denied(display, unknown(errTooDeep))
		return
	}
	if !r.done {
		w.readFolder(abs, display, r)
	}
	if r.of != nil {
		w.takeReadPackage(abs, display, r.of)
		return
	}
	entries := r.entries
	if r.err != nil {
		w.unreadable(display, abs, regularfile.ReadError(r.err)) // what could be read of it is listed all the same
	}
	if has(entries, toolfile.ManifestFile) || has(entries, toolfile.CapsuleFile) {
		w.packageAt(abs, display)
		return
	}
	if level > 0 && has(entries, misnamedManifest) {
		w.rulesBelow(abs, display, "", 0, false)
		// What it holds must not be served as if it said nothing of itself.
		w.problem(filepath.Join(display, misnamedManifest), "", manifest.Fault, fmt.Errorf("is not read: call it %s; nothing in its folder is served", toolfile.ManifestFile))
		return
	}
	w.entries(abs, display, entries, level)
}

// misnamedManifest is what people call a toolfile.ManifestFile by mistake.
const misnamedManifest = "tool.yml"

// has reports whether a folder has an entry of that name that is not a folder.
// The entries are sorted.
func has(entries []fs.DirEntry, name string) bool {
	i, ok := slices.BinarySearchFunc(entries, name, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return ok && !entries[i].IsDir()
}

// entries looks at what is in a folder that is not a package.
func (w *walker) entries(abs, display string, entries []fs.DirEntry, level int) {
	in := newListing(abs, display, entries)
	var versions []string
	if abs != w.root || w.rootHasVersions {
		versions = in.versions()
		if w.order != nil {
			w.order(abs, versions)
		}
	}
	ahead := ahead{w: w, in: &in}
	for i, entry := range entries {
		name := entry.Name()
		switch {
		case w.load.Stopped() != nil:
			return
		case isPassedOver(name), w.only != nil && (entry.IsDir() || !w.only(name)):
		case entry.IsDir():
			if Skips(name) {
				w.skipped(in, name)
				continue
			}
			if len(versions) > 0 && slices.Contains(versions, name) {
				w.versions(in, versions)
				versions = nil
				continue
			}
			r := ahead.of(i)
			if r.abs == "" {
				r.abs, r.display = in.below+name, in.shown+name
			}
			w.folder(r.abs, r.display, level+1, r)
		case entry.Type() == fs.ModeSymlink:
			w.link(&in, name)
		case entry.Type().IsRegular():
			w.file(&in, entry, ahead.of(i))
		case strings.HasSuffix(name, toolfile.SidecarSuffix): // see strayDescriptions
		case resource.HasExtension(name):
			w.rulesOf(in.shown+name, in.below+name)
		default:
			w.warn(in.shown+name, "is skipped: it is %s, not a file", regularfile.KindOf(entry.Type()))
		}
	}
	w.strayDescriptions(in)
}

// skipped warns of a package in a folder that is not searched.
func (w *walker) skipped(in listing, name string) {
	for _, file := range []string{toolfile.ManifestFile, toolfile.CapsuleFile} {
		if info, err := os.Lstat(filepath.Join(in.below+name, file)); err == nil && info.Mode().IsRegular() {
			w.warn(in.shown+name, "is skipped, although %s is in it: folders with this name are not searched; rename it", file)
			return
		}
	}
}

// listing is a folder that is being looked at.
type listing struct {
	abs, display string
	below, shown string // what stands before the name of an entry
	entries      []fs.DirEntry
	described    map[string]bool // executables that were met, by their sidecars' names
	describes    bool            // it has a file whose name may be that of a sidecar, or is nearly one
}

func newListing(abs, display string, entries []fs.DirEntry) listing {
	in := listing{abs: abs, display: display, entries: entries, described: map[string]bool{}}
	in.below, in.shown = strings.TrimSuffix(filepath.Join(abs, "x"), "x"), strings.TrimSuffix(filepath.Join(display, "x"), "x")
	in.describes = slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return strings.Contains(strings.ToLower(e.Name()), toolfile.NearlySidecar)
	})
	return in
}

// sidecarsOf finds the files that describe an executable.
func (in listing) sidecarsOf(name string) []string {
	if !in.describes {
		return nil
	}
	return toolfile.SidecarsOf(name, in.has)
}

func (in listing) has(name string) bool { return has(in.entries, name) }

// link looks at what a link points to. A folder is not entered: it is found by
// itself, and so no loop of links can lead astray.
func (w *walker) link(in *listing, name string) {
	if strings.HasSuffix(name, toolfile.SidecarSuffix) {
		return // it describes an executable; see strayDescriptions
	}
	at, path := in.shown+name, in.below+name
	target, err := filepath.EvalSymlinks(path)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.problem(at, "", manifest.Warning, fmt.Errorf("is skipped: it %w", manifest.ErrNowhere))
		w.unfollowed(at, path, err)
	case err != nil:
		w.warn(at, "is skipped: it is a link that cannot be followed: %s", strings.TrimPrefix(err.Error(), "EvalSymlinks: "))
		w.unfollowed(at, path, err)
	case !regularfile.Within(w.root, target):
		w.warn(at, "is skipped: it is a link that leaves the folder, to %s", target)
		if info.IsDir() && !Skips(name) {
			w.folderLinks = append(w.folderLinks, folderLink{at, target})
		}
		if !info.IsDir() && (resource.HasExtension(name) || resource.HasExtension(target)) {
			w.rulesOf(at, target)
		}
	case info.IsDir():
		if !Skips(name) {
			w.folderLinks = append(w.folderLinks, folderLink{at, target})
		}
	case !info.Mode().IsRegular():
		w.warn(at, "is skipped: it is a link to %s, not to a file", regularfile.KindOf(info.Mode()))
		if resource.HasExtension(name) {
			w.rulesOf(at, target)
		}
	default:
		w.regular(in, name, target, info, nil)
	}
}

// file looks at a regular file, of which something may have been read.
func (w *walker) file(in *listing, entry fs.DirEntry, r *reading) {
	if !r.done {
		r.info, r.err = entry.Info()
	}
	info, err := r.info, r.err
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was removed since the folder was read
	case err != nil:
		at, path := in.shown+entry.Name(), in.below+entry.Name()
		w.problem(at, "", manifest.Warning, regularfile.ReadError(err))
		if resource.HasExtension(at) {
			w.unreadable(at, path, regularfile.ReadError(err))
		}
	default:
		w.regular(in, entry.Name(), in.below+entry.Name(), info, r.parsed)
	}
}

// regular looks at a regular file called name, whose path without links is file. parsed is what was read of it as an
// executable that no sidecar describes; nil if nothing was.
func (w *walker) regular(in *listing, name, file string, info fs.FileInfo, parsed *toolfile.Parsed) {
	at := in.shown + name
	if strings.HasSuffix(name, toolfile.SidecarSuffix) {
		return // it describes an executable; see strayDescriptions
	}
	if name == misnamedManifest {
		w.warn(at, "is not read: call it %s", toolfile.ManifestFile)
		w.rulesOf(at, file)
		return
	}
	if resource.HasExtension(name) && w.resources(at, file) {
		return
	}
	sidecars := in.sidecarsOf(name)
	if info.Mode()&0o111 == 0 {
		switch {
		case len(sidecars) > 0:
		case looksLikeTool(file):
			w.plain = append(w.plain, plainFile{at, file})
		case filepath.Ext(name) == "" && resource.LooksLikeRules(file):
			w.warn(at, "is not read, so that its rules forbid nothing: call it %s.yaml", name)
		}
		return
	}
	for _, sidecar := range sidecars {
		in.described[sidecar] = true
	}
	if parsed == nil {
		parsed = w.parse(w.executable(in, name, file, sidecars), info)
	}
	t, warnings, err := parsed.Tool(w.resolve)
	if errors.Is(err, toolfile.ErrModule) {
		return
	}
	for _, sidecar := range sidecars {
		if err == nil {
			break // it is a description
		}
		describes := filepath.Join(in.abs, sidecar)
		unread := w.readRules(filepath.Join(in.display, sidecar), describes)
		if unread != nil && !isGone(describes, unread) {
			w.denied(at, unknown(err))
			return
		}
	}
	severity := manifest.Fault
	if _, ok := errors.AsType[*regularfile.UnreadableError](err); ok {
		severity = manifest.Warning
	}
	w.take(at, t, warnings, severity, err)
}

// executable is an executable called name, whose path without links is file.
func (w *walker) executable(in *listing, name, file string, sidecars []string) toolfile.Executable {
	e := toolfile.Executable{Base: name, Path: file, Display: in.shown + name, Folder: in.abs, Dir: w.root, Sidecars: sidecars}
	if in.describes {
		e.Misnamed = toolfile.MisnamedSidecar(name, in.has)
	}
	return e
}

// take keeps a tool, or says why it is not served.
func (w *walker) take(at string, t *manifest.Tool, warnings []error, severity manifest.Severity, err error) {
	for _, warning := range warnings {
		w.problem(at, t.Name, manifest.Warning, warning)
	}
	if err == nil {
		w.found = append(w.found, found{tool: t, location: location{entry: at, id: t.Path}})
		return
	}
	w.problem(at, t.Name, severity, err)
}

// strayDescriptions reports sidecars without an executable beside them.
func (w *walker) strayDescriptions(in listing) {
	for _, entry := range in.entries {
		name := entry.Name()
		target, ok := strings.CutSuffix(name, toolfile.SidecarSuffix)
		if !ok || target == "" || target[0] == '.' || entry.IsDir() || in.described[name] || w.only != nil && !w.only(name) {
			continue
		}
		at, path := in.shown+name, in.below+name
		if kind := entry.Type(); kind.IsRegular() {
			if w.resources(at, path) {
				continue
			}
		} else if w.rulesOf(at, path); kind != fs.ModeSymlink {
			continue
		}
		w.problem(at, "", manifest.Fault, fmt.Errorf("describes no executable: there is none called %s in its folder, with or without an extension (chmod +x)", target))
	}
}
