//go:build amd64 || arm64

package sandbox

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch/shim"
)

// view is the part of the machine's files that a process sees.
type view struct {
	binds map[string]string // the machine's paths that are bound read-only, by their path inside; links in these are resolved
	links map[string]string
	files map[string]string
	veils map[string]bool // visible folders that are empty except for binds below them, true; and visible files that are empty, false
	// writes are the binds that the process can change; true for a folder.
	writes  map[string]bool
	folders map[string]bool // folders of the sandbox itself, which show what is in those of the machine; see around
	hidden  []string        // what grants do not show, without links as far as it exists
	// checked says which files granted and hidden paths were when they were looked at.
	checked map[string]shim.Identity
}

// programs are the folders with the machine's programs and libraries. Those that are links stay
// links.
var programs = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"}

// settings are the files of /etc that programs need: none with users, and no keys.
var settings = [...]string{
	"/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/fonts", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/pki/ca-trust/extracted",
	"/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
}

// made are files that the sandbox makes.
var made = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/:/bin/false\norla:x:" + strconv.Itoa(ID) + ":" + strconv.Itoa(ID) + ":a tool:/tmp:/bin/sh\n",
	"/etc/group":  "root:x:0:\norla:x:" + strconv.Itoa(ID) + ":\n",
	"/etc/hosts":  "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
}

// own are the sandbox's own folders. Nothing of the machine can be bound below them.
var own = [...]string{"/proc", "/sys", "/dev", shim.Old}

// newView returns the view of a process that sees paths, and nothing else below the hidden folders.
func newView(paths, hidden []string) (view, error) {
	v := view{binds: map[string]string{}, links: map[string]string{}, files: map[string]string{}, veils: map[string]bool{}, writes: map[string]bool{}, folders: map[string]bool{}, checked: map[string]shim.Identity{}}
	for _, path := range programs {
		v.system(path)
	}
	for _, path := range settings {
		v.system(path)
	}
	for _, path := range hidden {
		v.hide(path)
	}
	for _, path := range paths {
		if err := v.expose(path); err != nil {
			return view{}, err
		}
	}
	for path, content := range made {
		if !v.sees(path) {
			v.files[path] = content
		}
	}
	return v, nil
}

// system adds a path that is the same inside and outside, if it exists.
func (v view) system(path string) {
	info, err := os.Lstat(path)
	if err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink == 0 {
		if source, err := filepath.EvalSymlinks(path); err == nil {
			v.binds[path] = source
		}
		return
	}
	if target, err := os.Readlink(path); err == nil {
		v.links[path] = target
	}
}

// hide empties a folder or a file, if it is visible. The process does not start if that fails then.
func (v view) hide(path string) {
	folder, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(folder) {
		return // it is not there
	}
	if !v.sees(folder) {
		return
	}
	if is, kind, err := identify(folder); !os.IsNotExist(err) {
		v.veils[folder], v.checked[folder] = err != nil || kind == unix.S_IFDIR, is
	}
}

// mayShow returns an error for a path that a sandbox has its own of.
func mayShow(path string) error {
	for _, folder := range append(own[:], "/tmp") {
		if path == folder || path == "/" || folder != "/tmp" && under(path, folder) {
			return fault.New(fault.IsolationUnavailable, "%s cannot be shown to a sandbox, which has its own; expose a folder next to it", path)
		}
	}
	return nil
}

// expose adds a path of the machine. A path that does not exist is ignored.
func (v view) expose(path string) error {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return fault.New(fault.IsolationUnavailable, "%q cannot be shown to a sandbox: it is not an absolute path", path)
	}
	if err := mayShow(path); err != nil {
		return err
	}
	source, err := filepath.EvalSymlinks(path)
	if err != nil || v.binds[path] != "" {
		return nil //nolint:nilerr // a missing path is not visible
	}
	if seen, ok := v.locate(path); ok {
		if real, err := filepath.EvalSymlinks(seen); err == nil && real == source && v.sees(source) {
			return nil // it is already visible
		}
	}
	for _, own := range [...]map[string]string{v.links, v.binds} {
		for inside := range own {
			if under(inside, path) { // it is visible with this one
				delete(own, inside)
			}
		}
	}
	v.binds[path] = source
	return nil
}

// sees reports whether a path or a folder above it is visible.
func (v view) sees(path string) bool {
	_, ok := v.locate(path)
	return ok
}

// leadsTo reports whether something below a path is visible, so that the path is a folder inside.
func (v view) leadsTo(path string) bool {
	for shown := range v.binds {
		if filepath.IsAbs(path) && under(shown, path) {
			return true
		}
	}
	return false
}

// locate returns the machine's path for a path inside; false if it is not visible. It follows the
// view's links, which lead to folders.
func (v view) locate(path string) (string, bool) {
	for link, target := range v.links {
		if !under(path, link) {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = target + path[len(link):]
		break
	}
	for dir := path; len(dir) > 1; dir = filepath.Dir(dir) {
		if source, ok := v.binds[dir]; ok {
			return source + path[len(dir):], true
		}
		if _, hidden := v.veils[dir]; hidden {
			return "", false
		}
	}
	return "", false
}

// runs reports whether the path of a program leads to a file inside.
func (v view) runs(path string) bool {
	source, ok := v.locate(path)
	if !ok {
		return false
	}
	real, err := filepath.EvalSymlinks(source)
	return err == nil && v.sees(real)
}

// under reports whether a path is a folder, or below it.
func under(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (rest == "" || rest[0] == '/')
}

// devices are the visible devices of the machine.
var devices = [...]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// deviceLinks are the links in /dev. /dev/shm is /tmp.
var deviceLinks = [...][2]string{
	{"/dev/fd", "/proc/self/fd"},
	{"/dev/stdin", "/proc/self/fd/0"},
	{"/dev/stdout", "/proc/self/fd/1"},
	{"/dev/stderr", "/proc/self/fd/2"},
	{"/dev/shm", "/tmp"},
}

const (
	tmpOptions  = "mode=1777,size=16m,nr_inodes=16k"
	procOptions = "hidepid=invisible,subset=pid"
)

// entries returns what a stage makes: first the sandbox's own folders, then the machine's, outer
// ones before inner ones.
func (v view) entries() []shim.Entry {
	p := &placing{there: map[string]bool{"/": true}}
	for _, own := range [...]shim.Entry{
		{Kind: shim.Memory, Path: "/tmp", Data: tmpOptions},
		{Kind: shim.Proc, Path: "/proc", Data: procOptions},
	} {
		p.folder(own.Path)
		p.add(own)
	}
	p.folder("/dev")
	for _, path := range devices {
		p.add(shim.Entry{Kind: shim.File, Path: path})
		p.add(shim.Entry{Kind: shim.Device, Path: path, Data: path})
	}
	for _, l := range deviceLinks {
		p.add(shim.Entry{Kind: shim.Link, Path: l[0], Data: l[1]})
	}
	for _, path := range slices.Sorted(maps.Keys(v.folders)) {
		p.folder(path)
	}
	shown := slices.Concat(slices.Collect(maps.Keys(v.binds)), slices.Collect(maps.Keys(v.veils)))
	slices.Sort(shown) // a folder comes before its content
	for _, path := range slices.Compact(shown) {
		if source, ok := v.binds[path]; ok {
			_, writable := v.writes[path]
			p.bind(shim.Entry{Kind: shim.Bind, Path: path, Data: source, Is: v.checked[path]}, writable)
		} else if v.veils[path] {
			p.veil(path, v.checked[path])
		} else {
			p.add(shim.Entry{Kind: shim.Device, Path: path, Data: os.DevNull, Is: v.checked[path]})
		}
	}
	for _, path := range p.veils {
		p.add(shim.Entry{Kind: shim.Seal, Path: path})
	}
	for path, target := range v.links {
		p.folder(filepath.Dir(path))
		p.add(shim.Entry{Kind: shim.Link, Path: path, Data: target})
	}
	for path, content := range v.files {
		p.folder(filepath.Dir(path))
		p.add(shim.Entry{Kind: shim.File, Path: path, Data: content})
	}
	return p.entries
}

// placing collects entries.
type placing struct {
	entries []shim.Entry
	there   map[string]bool // folders that exist at this point
	shown   []string        // bound paths: nothing can be made below them
	veils   []string        // veils: folders can be made below them
}

func (p *placing) add(e shim.Entry) { p.entries = append(p.entries, e) }

// folder adds a folder and those above it.
func (p *placing) folder(path string) {
	if p.there[path] {
		return
	}
	p.folder(filepath.Dir(path))
	p.there[path] = true
	p.add(shim.Entry{Kind: shim.Folder, Path: path})
}

// veil adds an empty folder on top of a visible one.
func (p *placing) veil(path string, is shim.Identity) {
	p.add(shim.Entry{Kind: shim.Memory, Path: path, Data: "size=64k,mode=0755", Is: is})
	p.there[path] = true
	p.veils = append(p.veils, path)
}

// full reports whether a path is below a bound path, and not below a veil on it.
func (p *placing) full(path string) bool {
	for dir := path; len(dir) > 1; dir = filepath.Dir(dir) {
		switch {
		case slices.Contains(p.shown, dir):
			return true
		case slices.Contains(p.veils, dir):
			return false
		}
	}
	return false
}

// bind adds a path of the machine. If the mount point is below a bound path, it exists there
// already.
func (p *placing) bind(e shim.Entry, writable bool) {
	info, err := os.Stat(e.Data)
	if err != nil {
		return // it is gone
	}
	if !p.full(e.Path) {
		if info.IsDir() {
			p.folder(e.Path)
		} else {
			p.folder(filepath.Dir(e.Path))
			p.add(shim.Entry{Kind: shim.File, Path: e.Path})
		}
	}
	p.shown = append(p.shown, e.Path)
	if writable {
		e.Kind = shim.Share
	}
	p.add(e)
}
