package governance

import (
	"bytes"
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
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// memory is what a Gate keeps from one start of Orla to the next, so that neither a capsule that drops a tool closes
// the gate, nor a folder of rules that is away for a while opens it.
type memory struct {
	seen  map[string]bool // folded names that tools had
	files map[string]bool // absolute paths of the files with rules in force, and of those that are out of reach
	saved string          // what the file has
	read  bool            // it was read

	accepted Accepted // rules may be gone: see AcceptNoRules
	unsure   bool     // the file cannot be read, and nobody knows where rules were
}

// remembered is the file.
type remembered struct {
	Names []string `json:"names"` // of seen, those that rules name
	Files []string `json:"files"`
}

// maxMemory bounds the file, in bytes.
const maxMemory = 64 << 20

// recallLocked reads the file once. If it cannot be read, what rules name, and where they are, is known from what is
// there now alone, and there have to be some.
func (g *Gate) recallLocked() {
	if g.read {
		return
	}
	g.read, g.seen, g.files = true, map[string]bool{}, map[string]bool{}
	if g.Memory == "" {
		return
	}
	var was remembered
	raw, err := regularfile.ReadOwn(g.Memory, maxMemory)
	if err == nil {
		err = json.Unmarshal(raw, &was)
	}
	if err != nil {
		g.unsure = !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) // below a file there is none
		if g.unsure && g.Log != nil {
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
	if g.Memory == "" || g.Partial || g.unsure {
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

// Accepted is told of each file or folder whose rules are gone, and which would have denied every call. It must not
// call the Gate.
type Accepted func(at string, why error)

// AcceptNoRules lets the next Set take it as meant that rules are gone (docs/decisions/0059). Listed ends that. note is
// called before a call is allowed by it.
func (g *Gate) AcceptNoRules(note Accepted) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accepted = note
}

// findFilesLocked notes where the rules are, and adds a problem that denies every call for each place that had rules, and
// has lost them in a way that nobody may have meant: it is out of reach, a file is empty or damaged, or a folder has no rules
// any more. If that is accepted, such a place is forgotten instead.
func (g *Gate) findFilesLocked(found *manifest.Result, cfg *config.Loaded) {
	now := filesOf(found.Rules)
	var all []manifest.Problem
	deny := func(at string, err error, files ...string) {
		addOnce(&all, manifest.Problem{Path: at, Severity: manifest.Fault, Denies: true, Err: err})
		if g.accepted == nil {
			for _, file := range files {
				now[file] = true
			}
		}
	}
	if g.unsure = g.unsure && found.Rules.Empty(); g.unsure {
		deny(g.Memory, errors.New("cannot be read, and says where rules were; there are none now, so every call is denied until there are some, or until "+acceptance))
		g.unsure = g.accepted == nil
	}
	folders := append([]string{cfg.ToolsDir}, found.Folders...)
	unread := map[string]bool{} // that is said of them, and it denies
	for _, p := range found.Problems {
		unread[config.Absolute(p.Path)] = p.Denies || unread[config.Absolute(p.Path)]
	}
	var gone []string
	for _, file := range slices.Sorted(maps.Keys(g.files)) {
		if now[file] {
			continue
		}
		if unread[file] {
			now[file] = true
			continue
		}
		at, err := lostFile(file, folders, cfg)
		if err == nil {
			gone = append(gone, file)
			continue
		}
		deny(at, err, file)
	}
	for _, folder := range slices.Compact(folders) {
		is := func(file string) bool { _, below := below(file, folder); return below }
		if lost := slices.DeleteFunc(slices.Clone(gone), func(file string) bool { return !is(file) }); len(lost) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(now)), is) {
			deny(folder, emptied(lost), lost...)
		}
	}
	for _, p := range all {
		if g.accepted != nil {
			g.accepted(p.Path, p.Err)
		} else {
			addOnce(&found.Problems, p)
		}
	}
	g.files = now
}

// filesOf returns the absolute paths of the files that rules are in. Rules of a cluster are in none.
func filesOf(all manifest.Rules) map[string]bool {
	files, known := map[string]bool{}, map[string]bool{}
	add := func(at string) {
		file, _, _ := strings.Cut(at, ":")
		if known[file] {
			return
		}
		known[file] = true
		if path := config.Absolute(file); exists(path) {
			files[path] = true
		}
	}
	for _, r := range all.Roles {
		add(r.At)
	}
	for _, p := range all.Policies {
		add(p.At)
	}
	for _, p := range all.Permissions {
		add(p.At)
	}
	return files
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// emptied is the error for a folder that has lost all its rules, which were in these files.
func emptied(files []string) error {
	more := ""
	if len(files) > 1 {
		more = fmt.Sprintf(" and %d more", len(files)-1)
	}
	return fmt.Errorf("had rules, in %s%s, and has none now; every call is denied until there are some, or until %s", files[0], more, acceptance)
}

// lostFile returns where, and why, nobody can know whether a file of one of these folders is to have no rules any more: it
// is out of reach, or damaged. It returns no error for a file that is gone, or that has other resources in it.
func lostFile(file string, folders []string, cfg *config.Loaded) (at string, err error) {
	served := false
	for _, folder := range folders {
		if at, err = outOfReach(file, folder, cfg.Only != "" && folder == cfg.ToolsDir); err != nil {
			return at, err
		}
		_, is := below(file, folder)
		served = served || is
	}
	if !served || !exists(file) || resource.Declares(file) {
		return "", nil
	}
	return file, fmt.Errorf("%s, and had rules; every call is denied until they are back, or until %s", spoiled(file), acceptance)
}

// spoiled says what is wrong with a file that had rules.
func spoiled(file string) string {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return "is " + regularfile.KindOf(info.Mode())
	}
	if head, _, err := regularfile.Head(file, maxBlank); err == nil && len(bytes.TrimSpace(head)) == 0 {
		return "is empty"
	}
	return "has nothing in it that Orla knows, or is damaged"
}

// acceptance is how an operator says that rules are gone on purpose.
const acceptance = "orla reload --accept-no-rules says that there are to be none"

// maxBlank is how many bytes of a file are looked at, to find out whether it is empty.
const maxBlank = 64 << 10

// below returns the path of a file relative to a folder, if it is below that.
func below(file, folder string) (rest string, is bool) {
	root := config.Absolute(folder)
	return strings.CutPrefix(file, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator))
}

// outOfReach returns where the way to a file with rules ends, and an error, if nobody can know whether the rules are still
// there: the folder of tools is away, or a link on the way leads nowhere, in packages too. A file or a folder
// that is gone from where it stood was removed. single says that another folder is served.
func outOfReach(file, folder string, single bool) (at string, _ error) {
	rest, is := below(file, folder)
	if !is {
		return "", nil
	}
	root := config.Absolute(folder)
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && !info.IsDir() && !single, isNoFolder(err):
		return folder, errors.New(
			"is not there, and the rules in it; every call is denied until it is back, or until " + acceptance)
	case err != nil:
		return folder, lost(err)
	}
	for name := range strings.SplitSeq(rest, string(filepath.Separator)) {
		root, folder = filepath.Join(root, name), filepath.Join(folder, name)
		info, err := os.Lstat(root)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			if _, err = os.Stat(root); errors.Is(err, os.ErrNotExist) || isNoFolder(err) {
				return folder, fmt.Errorf("%w, and there were rules behind it; every call is denied until they are back, or until %s", manifest.ErrNowhere, acceptance)
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
