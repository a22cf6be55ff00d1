// Package version says which Orla this is. The answer comes from the linker when
// the Makefile built the program, else from what the Go tool wrote into it.
package version

import (
	"cmp"
	"runtime/debug"
)

// Set by the linker: -X …/internal/app/version.version=v1.2.3.
var version, revision, date string

// Version returns the version of this program, such as "v1.2.3", or "devel" when
// nobody gave it one.
func Version() string {
	return pick(version, info())
}

// Commit returns the revision this program was built from, with "-dirty" after
// it if there were uncommitted changes, or "" when it is not known.
func Commit() string {
	return cmp.Or(revision, commit(info()))
}

// Date returns when that revision was made, as in RFC 3339, or "" when it is not
// known. The time of the build itself would make no two builds equal.
func Date() string {
	return cmp.Or(date, setting(info(), "vcs.time"))
}

// info returns what the Go tool wrote into the program, or nil.
func info() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return nil
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
	revision := setting(info, "vcs.revision")
	if revision != "" && setting(info, "vcs.modified") == "true" {
		revision += "-dirty"
	}
	return revision
}

// setting returns what info says of a key; "" for nothing, or for no info.
func setting(info *debug.BuildInfo, key string) string {
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
