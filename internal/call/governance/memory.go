package governance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest"
)

// memory is what a Gate keeps from one start of Orla to the next, so that neither a capsule that drops a tool closes
// the gate, nor a folder of rules that is away for a while opens it.
type memory struct {
	seen  map[string]bool // folded names that tools had
	files map[string]bool // absolute paths of the files with rules in force, and of those that are out of reach
	saved string          // what the file has
	read  bool            // it was read
}

// remembered is the file.
type remembered struct {
	Names []string `json:"names"` // of seen, those that rules name
	Files []string `json:"files"`
}

// recallLocked reads the file once. A file that cannot be read is as if there were none: what rules name, and where they
// are, is then known from what is there now alone.
func (g *Gate) recallLocked() {
	if g.read {
		return
	}
	g.read, g.seen, g.files = true, map[string]bool{}, map[string]bool{}
	if g.Memory == "" {
		return
	}
	var was remembered
	raw, err := os.ReadFile(g.Memory)
	if err == nil {
		err = json.Unmarshal(raw, &was)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) && g.Log != nil {
			g.Log.Warn("cannot read which names the rules used before", "path", g.Memory, "err", err)
		}
		return
	}
	g.saved = string(raw)
	for _, name := range was.Names {
		g.seen[name] = true
	}
	for _, file := range was.Files {
		g.files[file] = true
	}
}

// saveLocked writes the file, if something has changed.
func (g *Gate) saveLocked() {
	if g.Memory == "" || g.Partial {
		return
	}
	now := remembered{Names: []string{}, Files: slices.Sorted(maps.Keys(g.files))}
	for _, name := range slices.Sorted(maps.Keys(g.seen)) {
		if g.referenced[name] {
			now.Names = append(now.Names, name)
		}
	}
	raw, err := json.Marshal(now)
	if err != nil { // texts
		panic(err)
	}
	if string(raw) == g.saved || g.saved == "" && len(now.Names)+len(now.Files) == 0 {
		return
	}
	g.saved = string(raw) // also if it cannot be written: the next change tries again
	if err := wholefile.Write(g.Memory, raw); err != nil && g.Log != nil {
		g.Log.Warn("cannot store which names the rules use; the next start will not know them", "path", g.Memory, "err", err)
	}
}

// findFilesLocked notes where the rules are, and adds a problem that denies every call for each place out of reach that
// had some.
func (g *Gate) findFilesLocked(found *manifest.Result, cfg *config.Loaded) {
	now := map[string]bool{}
	add := func(at string) {
		file, _, _ := strings.Cut(at, ":")
		now[config.Absolute(file)] = true
	}
	for _, r := range found.Rules.Roles {
		add(r.At)
	}
	for _, p := range found.Rules.Policies {
		add(p.At)
	}
	for _, p := range found.Rules.Permissions {
		add(p.At)
	}
	folders := append([]string{cfg.ToolsDir}, found.Folders...)
	for _, file := range slices.Sorted(maps.Keys(g.files)) {
		if now[file] {
			continue
		}
		for _, folder := range folders {
			at, err := outOfReach(file, folder, cfg.Only != "" && folder == cfg.ToolsDir)
			if err != nil {
				now[file] = true
				addOnce(&found.Problems, manifest.Problem{Path: at, Severity: manifest.Fault, Denies: true, Err: err})
				break
			}
		}
	}
	g.files = now
}

// outOfReach returns where the way to a file with rules ends, and an error, if nobody can know whether the rules are still
// there: the folder of tools is away, or a link on the way leads nowhere, in packages too. A file or a folder
// that is gone from where it stood was removed. single says that another folder is served.
func outOfReach(file, folder string, single bool) (at string, _ error) {
	root := config.Absolute(folder)
	rest, below := strings.CutPrefix(file, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator))
	if !below {
		return "", nil
	}
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && !info.IsDir() && !single, isNoFolder(err):
		return folder, errors.New(
			"is not there, and the rules in it; every call is denied until it is back; if there are to be no rules, make the folder again, without them")
	case err != nil:
		return folder, lost(err)
	}
	for name := range strings.SplitSeq(rest, string(filepath.Separator)) {
		root, folder = filepath.Join(root, name), filepath.Join(folder, name)
		info, err := os.Lstat(root)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			if _, err = os.Stat(root); errors.Is(err, os.ErrNotExist) || isNoFolder(err) {
				return folder, fmt.Errorf("%w, and there were rules behind it; every call is denied until they are back, or the link is removed", manifest.ErrNowhere)
			}
		}
		switch {
		case errors.Is(err, os.ErrNotExist), isNoFolder(err):
			return "", nil
		case err != nil:
			return folder, lost(err)
		}
	}
	return "", nil
}

func isNoFolder(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// lost is the error for rules that cannot be looked for.
func lost(err error) error {
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("cannot be looked at, and there were rules in it; every call is denied until they are back: %w", err)
}
