//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/launch/shim"
)

// atRuntime are folders that no grant shows: in them are sockets and what processes of the machine keep.
var atRuntime = [...]string{"/run", "/var/run", "/var/lock"}

// resolvers are the files that say how names of hosts are found.
var resolvers = [...]string{"/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf"}

// open adds what was granted. exposed are paths of the tool itself, which stay visible and cannot be changed.
func (v view) open(opts Options, exposed []string) error {
	for _, path := range opts.Hidden {
		v.hidden = append(v.hidden, regularfile.Real(path))
	}
	for _, grant := range [...]struct {
		paths    []string
		writable bool
	}{{opts.Reads, false}, {opts.Writes, true}} { // what may be changed lies on top of what is only read
		for _, path := range grant.paths {
			if err := v.grant(path, grant.writable); err != nil {
				return err
			}
		}
	}
	if !opts.opens() {
		return nil
	}
	for _, folder := range append(opts.Hidden, atRuntime[:]...) {
		v.hide(folder)
	}
	for _, path := range exposed {
		if real, err := filepath.EvalSymlinks(path); err == nil && below(real, v.writes) {
			if v.binds[real] == "" {
				v.binds[real] = real
			}
		} else if err := v.expose(path); err != nil {
			return err
		}
	}
	if opts.Network {
		for _, path := range resolvers {
			if text, err := os.ReadFile(path); err == nil && len(text) < 64<<10 && !v.sees(path) {
				v.files[path] = string(text)
			}
		}
	}
	for path := range v.files {
		if v.sees(path) {
			delete(v.files, path)
		}
	}
	return nil
}

// grant shows a path. It fails if the path leads through a link now, as somebody may have put one there since it
// was granted.
func (v view) grant(path string, writable bool) error {
	if path == "/" {
		return v.grantAll(writable)
	}
	is, kind, err := identify(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return fault.New(fault.IsolationUnavailable, "%s was granted, and is now a link or cannot be read; install the package again to grant where it leads", path)
	case kind != unix.S_IFDIR && kind != unix.S_IFREG:
		return fault.New(fault.IsolationUnavailable, "%s was granted, and is neither a folder nor a file", path)
	}
	if !writable && v.sees(path) && !below(path, v.veils) {
		return nil
	}
	if !writable && slices.ContainsFunc(v.hidden, func(hidden string) bool { return under(hidden, path) }) {
		return v.around(path)
	}
	delete(v.binds, path)
	if err := v.expose(path); err != nil {
		return err
	}
	v.binds[path], v.checked[path] = path, is
	if writable {
		v.writes[path] = kind == unix.S_IFDIR
	}
	return nil
}

// mostShown bounds what is shown of folders that are not shown as a whole.
const mostShown = 4096

// around shows what is in a folder, except hidden paths. The folder is one of the sandbox's own: in that of the machine,
// the process would see a hidden path that is made or put in place later, since a mount covers a file and not a name (SPEC M7).
// Nor does it see what else is made in the folder later. A hidden path that was granted itself is not shown.
func (v view) around(folder string) error {
	if slices.Contains(v.hidden, folder) {
		return nil
	}
	if err := mayShow(folder); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fault.Wrap(fault.IsolationUnavailable, err, "%s was granted, and cannot be read: %v", folder, err)
	}
	if v.folders[folder] = true; len(v.binds)+len(v.links)+len(entries) > mostShown {
		return fault.New(fault.IsolationUnavailable, "%s was granted, and has too many files to show them without those of Orla itself; grant folders in it", folder)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		switch {
		case slices.Contains(v.hidden, path):
		case entry.Type()&os.ModeSymlink != 0:
			if target, err := os.Readlink(path); err == nil && !v.sees(path) {
				v.links[path] = target
			}
		case entry.IsDir(), entry.Type().IsRegular():
			if err := v.grant(path, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// identify returns which file a path is, and of what kind. It follows no link.
func identify(path string) (is shim.Identity, kind uint32, err error) {
	fd, err := shim.Open(path)
	if err != nil {
		return shim.Identity{}, 0, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return shim.Identity{}, 0, err
	}
	return shim.Identity{Device: info.Dev, Inode: info.Ino}, info.Mode & unix.S_IFMT, nil
}

// grantAll shows the folders of the root, except those that a sandbox has its own of. Programs cannot be changed.
func (v view) grantAll(writable bool) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return fault.Wrap(fault.IsolationUnavailable, err, "the root cannot be read: %v", err)
	}
	skipped := append(append(own[:], atRuntime[:]...), append(programs[:], "/tmp")...)
	for _, entry := range entries {
		if path := "/" + entry.Name(); entry.IsDir() && !slices.Contains(skipped, path) {
			if err := v.grant(path, writable); err != nil {
				return err
			}
		}
	}
	return nil
}

// below reports whether a path is one of some paths, or below one.
func below(path string, paths map[string]bool) bool {
	for folder := range paths {
		if under(path, folder) {
			return true
		}
	}
	return false
}
