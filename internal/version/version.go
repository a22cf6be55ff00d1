// Package version says which Orla this is. The answer comes from the linker when
// the Makefile built the program, else from what the Go tool wrote into it.
package version

import "runtime/debug"

// version is set by the linker: -X …/internal/version.version=v1.2.3.
var version string

// Version returns the version of this program, such as "v1.2.3", or "devel" when
// nobody gave it one.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = nil
	}
	return pick(version, info)
}

// Commit returns the revision this program was built from, with "-dirty" after
// it if there were uncommitted changes, or "" when it is not known.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commit(info)
}

// pick returns the linker's version if there is one, else that of info, which may be nil.
func pick(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info != nil && info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	default:
		return "devel"
	}
}

func commit(info *debug.BuildInfo) string {
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}
