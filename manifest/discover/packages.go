package discover

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// readPackage is what was read of a package in which nothing but its tool.yaml may hold governance documents, and no
// link is.
type readPackage struct {
	folders  []string       // its own, and those below it that are searched for such documents
	tool     *manifest.Tool // is not changed
	warnings []error
	err      error
}

// seenPackage is such a package as it was before it was read. It is not changed.
type seenPackage struct {
	display string
	folders []string
	paths   []string   // its folders, its tool.yaml and its entrypoint
	ids     []identity // of these
	lasts   *toolfile.Package
	hides   bool // its folder has an entry whose name begins with a dot
	again   bool // a later search has found it as it was
}

const (
	// mostFolders is how many folders a package may have to be remembered: each is looked at in every search.
	mostFolders = 16
	// mostBelow is how deep they may be.
	mostBelow = 8
)

// readFolder lists a folder, or reads it if it is a package. It may be called from several goroutines.
func (w *walker) readFolder(abs, display string, r *reading) {
	defer func() { r.done = true }()
	if before, known := w.known.packages[abs]; known && before.display == display && before.holds() {
		if t, ok := before.lasts.Tool(w.resolve); ok {
			if !before.again {
				now := *before
				now.again = true
				before = &now
			}
			w.keepPackage(abs, before)
			r.of = &readPackage{folders: before.folders, tool: t, err: before.lasts.Err()}
			return
		}
	}
	began := time.Now()
	p := packageFiles{}
	p.look(abs)
	r.entries, r.err = os.ReadDir(abs)
	if r.err != nil || !has(r.entries, toolfile.ManifestFile) || has(r.entries, toolfile.CapsuleFile) || !p.list(abs, r.entries, 0) {
		return
	}
	of := &readPackage{folders: p.folders}
	before := time.Time{}
	if w.seen != nil {
		before = w.now().Add(-time.Since(began))
	}
	var lasts *toolfile.Package
	var tool manifest.Tool
	tool, lasts, of.warnings, of.err = toolfile.ReadPackage(abs, toolfile.ManifestFile, filepath.Join(display, toolfile.ManifestFile), w.resolve)
	of.tool, r.of = &tool, of
	if lasts == nil || w.seen == nil || !slices.Contains(p.folders, filepath.Dir(lasts.Entrypoint())) {
		return
	}
	files := []string{filepath.Join(abs, toolfile.ManifestFile), lasts.Entrypoint()}
	for _, file := range files {
		p.look(file)
	}
	seen := &seenPackage{display: display, folders: p.folders, paths: slices.Concat(p.folders, files), ids: p.ids, lasts: lasts}
	seen.hides = slices.ContainsFunc(r.entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	// What is changed from now on has another identity for the next search.
	if len(seen.ids) == len(seen.paths) && !slices.ContainsFunc(seen.ids, func(id identity) bool { return !id.isOld(before) }) {
		w.keepPackage(abs, seen)
	}
}

// holds reports whether a package is as it was before it was read.
func (s *seenPackage) holds() bool {
	for i, path := range s.paths {
		if id, ok := lookAt(path); !ok || id != s.ids[i] {
			return false
		}
	}
	return true
}

// packageFiles is what a package is made of.
type packageFiles struct {
	folders []string
	ids     []identity // what could be looked at
}

func (p *packageFiles) look(path string) {
	if id, ok := lookAt(path); ok {
		p.ids = append(p.ids, id)
	}
}

// list collects a folder and those below it that rulesBelow would search. It reports whether rulesBelow would
// find nothing.
func (p *packageFiles) list(folder string, entries []fs.DirEntry, level int) bool {
	if len(p.folders) == mostFolders || level > mostBelow {
		return false
	}
	p.folders = append(p.folders, folder)
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case isPassedOver(name), level == 0 && name == toolfile.ManifestFile && entry.Type().IsRegular():
		case entry.IsDir():
			if Skips(name) {
				continue
			}
			below := filepath.Join(folder, name)
			p.look(below)
			in, err := os.ReadDir(below)
			if err != nil || !p.list(below, in, level+1) {
				return false
			}
		case entry.Type() == fs.ModeSymlink, resource.HasExtension(name):
			return false
		}
	}
	return true
}

// takeReadPackage keeps a package that readFolder has read, or says why it is not served.
func (w *walker) takeReadPackage(abs, display string, of *readPackage) {
	for _, folder := range of.folders[1:] { // nobody searches the first again, which is visited
		w.ruled[folder] = true
	}
	w.takePackage(cmp.Or(of.tool.Source, filepath.Join(display, toolfile.ManifestFile)), abs, toolfile.ManifestFile, of.tool, of.warnings, of.err)
}

func (w *walker) keepPackage(path string, p *seenPackage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keeps.packages[path] = p
}
