// Package doctor looks at what Orla needs of a machine, and says of what is
// missing what to do about it.
//
// It changes nothing, waits for nothing longer than a context or a second says,
// and knows nothing of Orla: internal/app/cli tells it which folders, programs and
// addresses matter.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Level says how bad a finding is.
type Level string

// The levels. Orla does its work with warnings, and not all of it with failures.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one thing that was looked at.
type Finding struct {
	Check string `json:"check"` // what was looked at: "port", "inotify"
	Level Level  `json:"level"`
	Text  string `json:"text"`          // what was found, and what it means
	Fix   string `json:"fix,omitempty"` // one command that mends it; "" if there is none
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: OK, Text: fmt.Sprintf(format, args...)}
}

func warn(check, fix, format string, args ...any) Finding {
	return Finding{Check: check, Level: Warn, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(check, fix, format string, args ...any) Finding {
	return Finding{Check: check, Level: Fail, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// Machine is where facts stand: Root is the folder that has /proc, /sys and the
// rest. The zero value is this machine.
type Machine struct{ Root string }

func (m Machine) path(path string) string { return filepath.Join("/", m.Root, path) }

// read returns what a small file says, without space around it; "" if it cannot be read.
func (m Machine) read(path string) string {
	text, err := os.ReadFile(m.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Readable looks at a folder whose files are run. A missing one is a warning:
// Orla waits for it to come.
func Readable(check, dir string) Finding {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(check, "mkdir -p "+Quote(dir), "%s does not exist; once it does, Orla serves the tools in it", dir)
	case err != nil:
		return fail(check, "", "%v", err)
	case !info.IsDir():
		return fail(check, "", "%s is not a folder", dir)
	case unix.Access(dir, unix.R_OK|unix.X_OK) != nil:
		return fail(check, "sudo chmod a+rx "+Quote(dir), "%s may not be read by this user", dir)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return warn(check, "chmod o-w "+Quote(dir), "every user may write to %s, and so run programs as the user that Orla runs as", dir)
	}
	return ok(check, "%s can be read", dir)
}

// Writable looks at a folder that Orla makes files in, and makes itself if it is missing.
func Writable(check, dir string) Finding {
	at := dir
	for {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
			at = filepath.Dir(at)
			continue
		}
		switch {
		case err != nil:
			return fail(check, "", "%v", err)
		case !info.IsDir():
			return fail(check, "", "%s is not a folder", at)
		case unix.Access(at, unix.W_OK|unix.X_OK) == nil && at == dir:
			return ok(check, "%s can be written", dir)
		case unix.Access(at, unix.W_OK|unix.X_OK) == nil:
			return ok(check, "%s will be made", dir)
		}
		fix := fmt.Sprintf("sudo install -d -o %d -g %d %s", os.Geteuid(), os.Getegid(), Quote(dir))
		return fail(check, fix, "%s may not be written by this user", at)
	}
}

// Kept looks at a folder in which Orla keeps what it goes by after the next start, such as approvals: who else may write there decides, too.
func Kept(check, dir string) Finding {
	f := Writable(check, dir)
	info, err := os.Stat(dir)
	if f.Level != OK || err != nil {
		return f
	}
	owner, me := int(info.Sys().(*syscall.Stat_t).Uid), os.Geteuid()
	switch {
	case info.Mode().Perm()&0o002 != 0:
		return warn(check, "chmod o-w "+Quote(dir), "every user may write to %s, and so decide about approvals and pins", dir)
	case me != 0 && owner != 0 && owner != me: // root may look at the folder of a service
		return warn(check, fmt.Sprintf("sudo chown %d %s", me, Quote(dir)), "%s belongs to another user (%d), who may so decide about approvals and pins", dir, owner)
	}
	return f
}

// Secrets looks at a folder that holds secrets, each a file or a folder of files.
func Secrets(check, dir string) Finding {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(check, "install -d -m 700 "+Quote(dir), "%s is not there, and no secret is found in it", dir)
	case err != nil:
		return fail(check, "", "%v", err)
	case !info.IsDir():
		return fail(check, "", "%s is not a folder", dir)
	case unix.Access(dir, unix.X_OK) != nil:
		return fail(check, fmt.Sprintf("sudo chown -R %d %s", os.Geteuid(), Quote(dir)), "%s may not be read by this user", dir)
	}
	if open := openToAll(dir); open != "" {
		return warn(check, "chmod -R o= "+Quote(dir), "every user may read %s", open)
	}
	return ok(check, "%s can be read, and not by every user", dir)
}

// openToAll returns a file in dir that every user may read; "" if there is none.
func openToAll(dir string) (found string) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // what this user cannot read others will see to
		}
		info, err := os.Stat(path) // a link is as open as what it leads to
		switch {
		case err != nil:
			return nil //nolint:nilerr // it leads nowhere
		case info.IsDir() && info.Mode().Perm()&0o001 == 0:
			return fs.SkipDir // nobody gets in
		case info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0:
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// File looks at a file that Orla appends to.
func File(check, file string) Finding {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f := Writable(check, filepath.Dir(file))
		if f.Level == OK {
			f.Text = file + " will be made"
		}
		return f
	case err != nil:
		return fail(check, "", "%v", err)
	case info.IsDir():
		return fail(check, "", "%s is a folder", file)
	case unix.Access(file, unix.W_OK) != nil:
		return fail(check, fmt.Sprintf("sudo chown %d %s", os.Geteuid(), Quote(file)), "%s may not be written by this user", file)
	}
	return ok(check, "%s can be written", file)
}

// LogFile looks at a file whose folder Orla does not make.
func LogFile(check, file string) Finding {
	dir := filepath.Dir(file)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fail(check, "mkdir -p "+Quote(dir), "%s is not there", dir)
	}
	return File(check, file)
}

// Quote makes a word of a path for a shell, if it is none as it is.
func Quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
