package discover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/toolfile"
)

// versions lists the entries of a folder NAME that are NAME/VERSION/tool.yaml,
// the highest first.
func (in listing) versions() []string {
	var list []string
	for _, entry := range in.entries {
		if !entry.IsDir() || !isVersionFolder(entry.Name()) {
			continue
		}
		if isFile(filepath.Join(in.abs, entry.Name(), toolfile.ManifestFile)) {
			list = append(list, entry.Name())
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return manifest.CompareVersions(b, a) })
	return list
}

// versions serves the highest of the versions in a folder. If that is faulty,
// the next one serves, since one bad entry never keeps another from being
// served (SPEC A2); its faults are reported all the same.
func (w *walker) versions(in listing, versions []string) {
	for i, version := range versions {
		dir := filepath.Join(in.abs, version)
		before := len(w.found)
		w.packageAt(dir, filepath.Join(in.display, version))
		if len(w.found) == before {
			continue
		}
		w.found[before].packed = true
		t := w.found[before].tool
		if folder := strings.TrimPrefix(version, "v"); t.Version != folder {
			w.problem(t.Source, t.Name, manifest.Warning, fmt.Errorf("has version %s but is in the folder of version %s", t.Version, folder))
		}
		if folder := filepath.Base(in.abs); t.Name != folder {
			w.problem(t.Source, t.Name, manifest.Warning, fmt.Errorf("is served as %q, the name in its manifest, although its folder is called %q", t.Name, folder))
		}
		for _, other := range versions[i+1:] {
			if manifest.CompareVersions(other, version) == 0 {
				w.problem(filepath.Join(in.display, other, toolfile.ManifestFile), t.Name, manifest.Fault,
					fmt.Errorf("conflict: %s is as high a version as %s, which is served; remove one of the two", other, t.Source))
			}
		}
		break
	}
	for _, version := range versions {
		abs := filepath.Join(in.abs, version)
		w.visited[abs] = true
		w.rulesBelow(abs, filepath.Join(in.display, version), "", 0, false) // a lower one is not read
	}
}

// packageAt reads the package in a folder. Of its two possible descriptions
// tool.yaml wins.
func (w *walker) packageAt(abs, display string) {
	old := filepath.Join(display, toolfile.CapsuleFile)
	isOld := isFile(filepath.Join(abs, toolfile.CapsuleFile))
	if isOld && !isFile(filepath.Join(abs, toolfile.ManifestFile)) {
		w.rulesBelow(abs, display, toolfile.CapsuleFile, 0, false)
		t, _, warnings, err := toolfile.ReadPackage(abs, toolfile.CapsuleFile, old, w.resolve)
		w.takePackage(old, abs, toolfile.CapsuleFile, &t, append([]error{errors.New(deprecated)}, warnings...), err)
		return
	}
	w.rulesBelow(abs, display, toolfile.ManifestFile, 0, false)
	if isOld {
		w.warn(old, "%s", hidden)
	}
	at := filepath.Join(display, toolfile.ManifestFile)
	t, _, warnings, err := toolfile.ReadPackage(abs, toolfile.ManifestFile, at, w.resolve)
	w.takePackage(at, abs, toolfile.ManifestFile, &t, warnings, err)
}

// takePackage keeps the package in a folder, or says why it is not served. What is called as its
// manifest, name, may be something else.
func (w *walker) takePackage(at, abs, name string, t *manifest.Tool, warnings []error, err error) {
	unread := error(nil)
	file := ""
	if err != nil {
		file = filepath.Join(abs, name)
		unread = w.readRules(at, file)
	}
	if unread == nil || isGone(file, unread) {
		w.take(at, t, warnings, manifest.Fault, err)
		return
	}
	for _, warning := range warnings {
		w.problem(at, t.Name, manifest.Warning, warning)
	}
	w.denied(at, unknown(err))
}

// isFile reports whether there is something by that name that is not a folder.
func isFile(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && !info.IsDir()
}

// isVersionFolder reports whether a folder's name is a version, as in
// NAME/VERSION/tool.yaml.
func isVersionFolder(name string) bool {
	return manifest.ValidVersion(strings.TrimPrefix(name, "v"))
}

const (
	deprecated = "is deprecated: tool.yaml replaces it (RFC 3); to convert it, move name, version, entrypoint and a description to a tool.yaml, " +
		"and everything else below runtime, with mode: capsule"
	hidden = "is ignored, since the tool.yaml next to it replaces it (RFC 3); remove it"
)
