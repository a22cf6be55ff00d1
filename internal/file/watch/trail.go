package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// step is a name in a folder. If the name changes, the path that it is a part of leads elsewhere.
type step struct{ dir, name string }

// trail returns the steps of path from dir, which must have no links: each link on the way, and the
// last name, or the first one that does not exist.
func trail(dir, path string) []step {
	const maxLinks = 40 // the kernel's limit
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

// split returns the elements of path, without empty ones and dots.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool {
		return name == "" || name == "."
	})
}
