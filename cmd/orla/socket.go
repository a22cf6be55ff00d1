package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/control"
)

// noSocket is the value of socket that wants no control socket.
const noSocket = "none"

// folder is what an Orla with this configuration serves.
func (c *loaded) folder() string { return cmp.Or(c.only, c.ToolsDir) }

// place is where an Orla with this configuration has its control socket.
func (c *loaded) place(l *loader) control.Place {
	switch c.Socket {
	case noSocket:
		return control.Place{}
	case "":
	default:
		return control.Place{Socket: absolute(c.Socket)}
	}
	if given := l.runtimeDirectory(); given != "" {
		return control.Place{Socket: control.In(given, c.folder())}
	}
	for _, dir := range []string{l.userRuntimeDir(), stateDir(c, "run")} {
		if dir != "" {
			return control.Place{Socket: control.In(absolute(dir), c.folder()), Private: true}
		}
	}
	return control.Place{}
}

// runtimeDirectory is the folder for sockets that systemd gives a service
// (RuntimeDirectory=); "" if it gives none.
func (l *loader) runtimeDirectory() string {
	given, _ := lookup(l.environ, "RUNTIME_DIRECTORY")
	first, _, _ := strings.Cut(given, ":")
	return first
}

// userRuntimeDir is where a user's sockets belong while a session lasts; "" if
// nothing says so, or it is another user's, as under sudo -E.
func (l *loader) userRuntimeDir() string {
	dir, _ := lookup(l.environ, "XDG_RUNTIME_DIR")
	return ownFolder(dir)
}

// sessionDir is the same for who looks for a socket: somebody else may have
// been told.
func (l *loader) sessionDir() string {
	if _, told := lookup(l.environ, "XDG_RUNTIME_DIR"); told {
		return l.userRuntimeDir()
	}
	return ownFolder(fmt.Sprintf("/run/user/%d", os.Geteuid()))
}

// ownFolder is the folder of Orla's sockets in dir, if dir is this user's.
func ownFolder(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return ""
	}
	return filepath.Join(dir, "orla")
}

// systemDir is where an Orla that is a service of the system has its socket.
const systemDir = "/run/orla"

// socketDirs are where an Orla may have its socket that this user can talk to.
func (c *loaded) socketDirs(l *loader) []string {
	var dirs []string
	for _, dir := range []string{l.runtimeDirectory(), l.sessionDir(), stateDir(c, "run"), systemDir} {
		if dir != "" {
			dirs = append(dirs, absolute(dir))
		}
	}
	return dirs
}

// isProject reports whether the folder that one stands in has tools or a configuration of
// its own: what is asked there is not about another project's Orla.
func (c *loaded) isProject() bool {
	info, err := os.Stat(c.folder())
	return err == nil && info.IsDir() || c.file != "" && !filepath.IsAbs(c.file)
}

// isBelow reports whether a folder is inside the tools folder, as that of orla dev is.
func (c *loaded) isBelow(folder string) bool {
	return strings.HasPrefix(control.Resolve(folder), control.Resolve(c.folder())+string(filepath.Separator))
}

// toldHere reports whether a key was given on the command line or in its
// environment: whoever did that means it.
func (c *loaded) toldHere(key string) bool { return c.originOf(key).rank >= fromEnviron }

// stateDir is a folder of the state folder; "" if there is none.
func stateDir(cfg *loaded, name string) string {
	if cfg.StateDir == "" {
		return ""
	}
	return filepath.Join(cfg.StateDir, name)
}

// absolute is a path as it can be read from anywhere. "" stays.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
