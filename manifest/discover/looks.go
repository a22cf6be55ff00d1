package discover

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest/toolfile"
)

// dataExtensions are those of files that are not worth opening to look for a
// shebang.
var dataExtensions = []string{
	".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".xml", ".html", ".css", ".lock", ".log",
	".png", ".jpg", ".svg", ".pdf", ".zip", ".gz", ".db", ".sqlite", ".pyc", ".o", ".so",
}

// looksLikeTool reports whether a file that is not executable may be meant to be.
func looksLikeTool(file string) bool {
	return !slices.Contains(dataExtensions, filepath.Ext(file)) && toolfile.LooksLikeTool(file)
}

// isBackup reports whether editors leave a file of that name beside the one
// that they saved, with its mode, or write it before they rename it.
func isBackup(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".tmp") || len(name) > 1 && name[0] == '#' && strings.HasSuffix(name, "#")
}
