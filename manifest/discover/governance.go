package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// maxLinked is how many entries of folders are searched that links lead to outside
// of the folder of tools.
const maxLinked = 100_000

// rulesBelow reports the governance documents in a folder that is not searched for tools, and below it: their
// author expects them to be in force. It leaves out what a search for tools leaves out, and the file called
// except. linked says that a link leads there from the folder of tools.
func (w *walker) rulesBelow(abs, display, except string, level int, linked bool) {
	if w.ruled[abs] || w.load.Stopped() != nil {
		return
	}
	w.ruled[abs] = true
	if level > maxLevels {
		w.denied(display, unknown(errTooDeep))
		return
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		w.unreadable(display, abs, regularfile.ReadError(err))
	}
	if linked {
		before := w.linked
		w.linked += len(entries)
		if w.linked > w.mostLinked {
			if before <= w.mostLinked {
				w.denied(display, unknown(fmt.Errorf("is not searched: links lead out of the folder of tools to more than %d files", w.mostLinked)))
			}
			return
		}
	}
	for _, entry := range entries {
		name := entry.Name()
		at, path := filepath.Join(display, name), filepath.Join(abs, name)
		switch {
		case w.load.Stopped() != nil:
			return
		case isPassedOver(name), name == except && !entry.IsDir():
		case entry.IsDir():
			if !Skips(name) && !w.visited[path] {
				w.rulesBelow(path, at, "", level+1, linked)
			}
		case entry.Type() == fs.ModeSymlink:
			w.rulesLinked(at, path, linked)
		case resource.HasExtension(name):
			w.rulesOf(at, path)
		}
	}
}

var errTooDeep = fmt.Errorf("is more than %d folders deep, and is not searched", maxLevels)

// isPassedOver reports whether an entry of that name is never looked at.
func isPassedOver(name string) bool { return strings.HasPrefix(name, ".") || isBackup(name) }

// rulesLinked does the same for what a link leads to.
func (w *walker) rulesLinked(at, path string, linked bool) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		w.unfollowed(at, path, err)
		return
	}
	info, err := os.Stat(target)
	switch {
	case err != nil:
		w.unfollowed(at, path, err)
	case info.IsDir():
		if !Skips(filepath.Base(at)) && !w.visited[target] {
			w.rulesBelow(target, at, "", 0, linked || !regularfile.Within(w.root, target))
		}
	case resource.HasExtension(at), resource.HasExtension(target):
		w.rulesOf(at, target)
	}
}

// unfollowed reports a link that cannot be followed, if a governance document may be behind it. A link to a file
// that does not exist is reported only if the link has the extension of a resource: the file may still come.
func (w *walker) unfollowed(at, path string, err error) {
	nowhere := errors.Is(err, fs.ErrNotExist)
	if resource.HasExtension(at) && nowhere {
		_, err := os.Lstat(path)
		if err == nil {
			w.denied(at, unknown(errors.New("is a link to a file that does not exist")))
		}
		return
	}
	errno, ok := errors.AsType[syscall.Errno](err) // it is none where links go round in a circle
	mayLead := ok && !slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG}, errno)
	if resource.HasExtension(at) || mayLead {
		w.unreadable(at, path, regularfile.ReadError(err))
	}
}

// denied reports a document that denies every call.
func (w *walker) denied(path string, err error) {
	w.problems = append(w.problems, manifest.Problem{Path: path, Severity: manifest.Fault, Err: err, Denies: true})
}

// unreadable reports a file or a folder that may be or hold a governance document, and cannot be read. path is
// where it is. If err is nil, there is nothing to report.
func (w *walker) unreadable(at, path string, err error) {
	if err == nil || isGone(path, err) {
		return
	}
	w.denied(at, unknown(err))
}

// isGone reports whether an entry cannot be read because it was removed since its
// folder was read. A link that leads nowhere is there.
func isGone(path string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// partly reports why a part of a file is not read. denies says that there may be a
// governance document in it.
func (w *walker) partly(path string, denies bool, err error) {
	if denies {
		w.denied(path, unknown(err))
		return
	}
	w.problem(path, "", manifest.Fault, err)
}

// unknown adds the consequence to the fault of a file whose content is not known completely.
func unknown(err error) error {
	return fmt.Errorf("%w; there may be a governance document in it, so that every call is denied until it can be read or is gone", err)
}

// rulesOf reports the governance documents of a file that is not read for
// resources, and that it cannot be read.
func (w *walker) rulesOf(at, path string) { w.unreadable(at, path, w.readRules(at, path)) }

// readRules is rulesOf that returns the error of reading.
func (w *walker) readRules(at, path string) error {
	c, err := w.load.Load(at, path)
	switch {
	case err == nil && c.Size > 0:
		w.tooLarge(at, c)
		return nil
	case err != nil || c.Data == nil:
		return err
	}
	list, unsure, err := resource.Parse(resource.File{Display: at, Dir: filepath.Dir(path)}, c.Data)
	if len(list) == 0 && err == nil {
		w.load.Remember(c)
	}
	rules := 0
	for i, d := range list {
		switch {
		case d.Rule && rules < maxFaulty:
			w.denied(at, d.Doc.Err())
			rules++
		case !d.Rules.Empty():
			w.declared(d, fmt.Sprintf("%s#%d", path, i))
		}
	}
	if unsure {
		w.denied(at, unknown(err))
	}
	return nil
}

// tooLarge reports a file that is too large for resources, if it seems to hold
// some, or a governance document. It reports whether it does.
func (w *walker) tooLarge(at string, c resource.Content) bool {
	if !c.Rule && !c.Ours {
		return false
	}
	w.partly(at, c.Rule, c.TooLarge(at))
	return true
}
