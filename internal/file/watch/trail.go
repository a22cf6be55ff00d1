package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// step is a name in a folder on which it depends where a path leads.
type step struct{ dir, name string }

// trail returns the steps from dir, which must be reached without links, along
// path: each link on the way, and the last name, or the first that is missing.
func trail(dir, path string) []step {
	const maxLinks = 40 // as in the kernel
	var steps []step
	names := split(path)
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		here := filepath.Join(dir, name)
		info, err := os.Lstat(here)
		isLink := err == nil && info.Mode().Type() == fs.ModeSymlink
		if err != nil || isLink || len(names) == 0 {
			steps = append(steps, step{dir, name})
		}
		switch {
		case err != nil:
			return steps
		case !isLink:
			dir = here
			continue
		}
		target, err := os.Readlink(here)
		if links++; err != nil || links > maxLinks {
			return steps
		}
		if filepath.IsAbs(target) {
			dir = string(filepath.Separator)
		}
		names = slices.Concat(split(target), names)
	}
	return steps
}

// split returns the names in path that say anything.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool {
		return name == "" || name == "."
	})
}
