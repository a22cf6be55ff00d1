package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// versions lists the entries of a folder NAME that are NAME/VERSION/tool.yaml,
// the highest first.
func (in listing) versions() []string {
	var list []string
	for _, entry := range in.entries {
		if !entry.IsDir() || !isVersionFolder(entry.Name()) {
			continue
		}
		if isFile(filepath.Join(in.abs, entry.Name(), manifestFile)) {
			list = append(list, entry.Name())
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return compareVersions(b, a) })
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
		t := w.found[before].tool
		if folder := strings.TrimPrefix(version, "v"); t.Version != folder {
			w.problem(t.Source, t.Name, Warning, fmt.Errorf("says version %s and is in the folder of version %s", t.Version, folder))
		}
		if folder := filepath.Base(in.abs); t.Name != folder {
			w.problem(t.Source, t.Name, Warning, fmt.Errorf("is served as %q, as it says, though its folder is called %q", t.Name, folder))
		}
		for _, other := range versions[i+1:] {
			if compareVersions(other, version) == 0 {
				w.problem(filepath.Join(in.display, other, manifestFile), t.Name, Fault,
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
	old := filepath.Join(display, capsuleFile)
	isOld := isFile(filepath.Join(abs, capsuleFile))
	if isOld && !isFile(filepath.Join(abs, manifestFile)) {
		w.rulesBelow(abs, display, capsuleFile, 0, false)
		t, warnings, err := readPackage(abs, capsuleFile, old)
		w.takePackage(old, filepath.Join(abs, capsuleFile), t, append([]error{errors.New(deprecated)}, warnings...), err)
		return
	}
	w.rulesBelow(abs, display, manifestFile, 0, false)
	if isOld {
		w.warn(old, "%s", hidden)
	}
	at := filepath.Join(display, manifestFile)
	t, warnings, err := readPackage(abs, manifestFile, at)
	w.takePackage(at, filepath.Join(abs, manifestFile), t, warnings, err)
}

// takePackage keeps a package, or says why it is not served. What is called as its
// manifest may be something else.
func (w *walker) takePackage(at, file string, t Tool, warnings []error, err error) {
	unread := error(nil)
	if err != nil {
		unread = w.readRules(at, file)
	}
	if unread == nil || isGone(file, unread) {
		w.take(at, t, warnings, Fault, err)
		return
	}
	for _, warning := range warnings {
		w.problem(at, t.Name, Warning, warning)
	}
	w.denied(at, unknown(err))
}

// isFile reports whether there is something by that name that is no folder.
func isFile(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && !info.IsDir()
}

// isVersionFolder reports whether a folder's name is a version, as in
// NAME/VERSION/tool.yaml.
func isVersionFolder(name string) bool {
	return validVersion(strings.TrimPrefix(name, "v"))
}
