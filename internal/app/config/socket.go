package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/file/regularfile"
)

// NoSocket is the value of socket for no control socket.
const NoSocket = "none"

// Folder returns the folder that an Orla with this configuration serves.
func (c *Loaded) Folder() string { return cmp.Or(c.Only, c.ToolsDir) }

// ControlSocket returns where an Orla with this configuration has its control socket.
func (c *Loaded) ControlSocket(l *Loader) unixsocket.Location {
	switch c.Socket {
	case NoSocket:
		return unixsocket.Location{}
	case "":
	default:
		return unixsocket.Location{Socket: Absolute(c.Socket)}
	}
	if given := l.runtimeDirectory(); given != "" {
		return unixsocket.Location{Socket: unixsocket.In(given, c.Folder())}
	}
	for _, dir := range []string{l.userRuntimeDir(), StateDir(c, "run")} {
		if dir != "" {
			return unixsocket.Location{Socket: unixsocket.In(Absolute(dir), c.Folder()), Private: true}
		}
	}
	return unixsocket.Location{}
}

// runtimeDirectory returns the folder for sockets that systemd gives a service (RuntimeDirectory=); ""
// for none.
func (l *Loader) runtimeDirectory() string {
	given, _ := LookupEnv(l.Environ, "RUNTIME_DIRECTORY")
	first, _, _ := strings.Cut(given, ":")
	return first
}

// userRuntimeDir is where a user's sockets belong while a session lasts; "" if
// nothing says so, or it is another user's, as under sudo -E.
func (l *Loader) userRuntimeDir() string {
	dir, _ := LookupEnv(l.Environ, "XDG_RUNTIME_DIR")
	return ownFolder(dir)
}

// sessionDir is the same for who looks for a socket: somebody else may have
// been told.
func (l *Loader) sessionDir() string {
	if _, set := LookupEnv(l.Environ, "XDG_RUNTIME_DIR"); set {
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

// systemDir is the folder of the socket of an Orla that is a system service.
const systemDir = "/run/orla"

// SocketDirs returns the folders with sockets of Orlas that this user can use.
func (c *Loaded) SocketDirs(l *Loader) []string {
	var dirs []string
	for _, dir := range []string{l.runtimeDirectory(), l.sessionDir(), StateDir(c, "run"), systemDir} {
		if dir != "" {
			dirs = append(dirs, Absolute(dir))
		}
	}
	return dirs
}

// IsProject reports whether the current folder has tools or a configuration: then commands are not about
// the Orla of another project.
func (c *Loaded) IsProject() bool {
	info, err := os.Stat(c.Folder())
	return err == nil && info.IsDir() || c.File != "" && !filepath.IsAbs(c.File)
}

// IsBelow reports whether a folder is inside the tools folder, as that of orla dev is.
func (c *Loaded) IsBelow(folder string) bool {
	return strings.HasPrefix(regularfile.Real(folder), regularfile.Real(c.Folder())+string(filepath.Separator))
}

// BelongsHere reports whether an Orla belongs to the current folder: it was started here, its
// tools are in this folder or around it, or it is the service of the system, which belongs to
// no folder.
func BelongsHere(o *unixsocket.Running) bool {
	here, tools := regularfile.Real("."), regularfile.Real(o.ToolsDir)
	return o.Dir != "" && regularfile.Real(o.Dir) == here || filepath.Dir(tools) == here ||
		here == tools || strings.HasPrefix(here, tools+string(filepath.Separator)) ||
		strings.HasPrefix(o.Socket, systemDir+string(filepath.Separator))
}

// GivenHere reports whether a key was set on the command line or in the environment, and so on purpose.
func (c *Loaded) GivenHere(key string) bool { return c.OriginOf(key).Rank >= FromEnviron }

// StateDir returns a folder inside the state folder; "" if there is no state folder.
func StateDir(cfg *Loaded, name string) string {
	if cfg.StateDir == "" {
		return ""
	}
	return filepath.Join(cfg.StateDir, name)
}

// Absolute returns an absolute path. "" stays.
func Absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
