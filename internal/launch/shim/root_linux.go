//go:build amd64 || arm64

package shim

import (
	"syscall"
	"unsafe"
)

const (
	sysOpenTree     = 428
	sysMoveMount    = 429
	sysCloseRange   = 436
	sysMountSetattr = 442

	attrReadOnly = 0x1 // MOUNT_ATTR_RDONLY and so on
	attrNoSuid   = 0x2
	attrNoDev    = 0x4
	attrNoExec   = 0x8

	atEmptyPath = 0x1000
	atRecursive = 0x8000

	openTreeClone  = 0x1
	moveEmptyPaths = 0x4 | 0x40 // MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH

	nothingSpecial = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
)

// nul is an empty string of C.
var nul byte //nolint:gochecknoglobals // it is never changed

// enterRoot makes the new root, and unmounts the machine's.
func enterRoot(p Plan) failure {
	syscall.Umask(0o022)
	if f := try("a cgroup namespace", syscall.Unshare(syscall.CLONE_NEWCGROUP)); f.is() {
		return f
	}
	if f := try("private mounts", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")); f.is() {
		return f
	}
	if f := try("a root of memory", syscall.Mount("orla", p.Base, "tmpfs", nothingSpecial, "size=1m,mode=0755")); f.is() {
		return f
	}
	if f := try("a root of memory", syscall.Mkdir(p.Base+Old, 0o700)); f.is() {
		return f
	}
	if f := try("pivot_root", syscall.PivotRoot(p.Base, p.Base+Old)); f.is() {
		return f
	}
	if f := try("pivot_root", syscall.Chdir("/")); f.is() {
		return f
	}
	for _, e := range p.Entries {
		if f := enter(e); f.is() {
			return f
		}
	}
	if f := try("leave the machine's root", syscall.Unmount(Old, syscall.MNT_DETACH)); f.is() {
		return f
	}
	if f := try("leave the machine's root", syscall.Rmdir(Old)); f.is() {
		return f
	}
	if f := try("a read-only root", seal("/")); f.is() {
		return f
	}
	// If the service must not change its host name (ProtectHostname=), the tool sees the machine's,
	// which no rule forbids.
	if err := syscall.Sethostname([]byte(p.Hostname)); err != syscall.EPERM {
		return try("a host name", err)
	}
	return failure{}
}

// enter makes one entry of the new root.
func enter(e Entry) failure {
	switch e.Kind {
	case Folder, Link, File:
		return try("make "+e.Path, create(e))
	case Bind:
		return try("show "+e.Path+" read-only", bind(e, atRecursive, attrReadOnly|attrNoSuid|attrNoDev))
	case Share:
		return try("show "+e.Path+" without programs", bind(e, atRecursive, attrNoExec|attrNoSuid|attrNoDev))
	case Device:
		return try("device "+e.Path, bind(e, 0, attrReadOnly|attrNoSuid|attrNoExec))
	case Memory:
		return try("memory at "+e.Path, mountNew(e, "tmpfs"))
	case Seal:
		return try("a read-only "+e.Path, seal(e.Path))
	case Proc:
		return try("processes at "+e.Path, mountNew(e, "proc"))
	}
	return failure{"an entry of the plan", syscall.EINVAL}
}

// create makes a folder, a link or a file. A folder may be there.
func create(e Entry) error {
	slash := len(e.Path) - 1
	for slash > 0 && e.Path[slash] != '/' {
		slash--
	}
	dir, err := Open(e.Path[:max(slash, 1)])
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(dir) }() // nothing was written to it
	if err := syscall.Fchdir(dir); err != nil {
		return err
	}
	name := e.Path[slash+1:]
	switch e.Kind {
	case Folder:
		if err := syscall.Mkdir(name, 0o755); err != syscall.EEXIST {
			return err
		}
		return nil
	case Link:
		return syscall.Symlink(e.Data, name)
	default:
		fd, err := syscall.Open(name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		if _, err := syscall.Write(fd, []byte(e.Data)); err != nil {
			_ = syscall.Close(fd) // the stage ends
			return err
		}
		return syscall.Close(fd)
	}
}

// bind shows Data of the machine at Path. Both are opened once, without following a link, and mounted by their
// descriptors: a link that somebody puts at one of them in the meantime leads nowhere.
func bind(e Entry, flags, attributes uintptr) error {
	source, err := Open(Old + e.Data)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(source) }() // nothing was written to it
	at, err := Open(e.Path)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(at) }() // the same
	checked := source
	if e.Kind == Device {
		checked = at
	}
	if err := e.Is.check(checked); err != nil {
		return err
	}
	tree, _, errno := syscall.RawSyscall(sysOpenTree, uintptr(source), emptyPath(), openTreeClone|syscall.O_CLOEXEC|atEmptyPath|flags)
	if errno != 0 {
		return errno
	}
	defer func() { _ = syscall.Close(int(tree)) }() // the mount stays
	if err := setattr(int(tree), flags, attributes); err != nil {
		return err
	}
	if _, _, errno := syscall.RawSyscall6(sysMoveMount, tree, emptyPath(), uintptr(at), emptyPath(), moveEmptyPaths, 0); errno != 0 {
		return errno
	}
	return nil
}

// mountNew mounts a file system on a folder, without following a link to it.
func mountNew(e Entry, kind string) error {
	at, err := Open(e.Path)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(at) }() // nothing was written to it
	if err := e.Is.check(at); err != nil {
		return err
	}
	if err := syscall.Fchdir(at); err != nil {
		return err
	}
	return syscall.Mount(kind, ".", kind, nothingSpecial, e.Data)
}

// seal makes a mount read-only.
func seal(path string) error {
	at, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(at) }() // nothing was written to it
	return setattr(at, 0, attrReadOnly)
}

// Open opens an absolute path to refer to it (O_PATH). It fails with ELOOP if any part of the path is a link, and with EINVAL
// if one is "..". It does not use openat2: systemd's RestrictSUIDSGID= forbids that, since its mode is in memory.
func Open(path string) (int, error) {
	const what = oPath | syscall.O_CLOEXEC | syscall.O_NOFOLLOW
	if path == "" || path[0] != '/' {
		return 0, syscall.EINVAL
	}
	at, err := syscall.Open("/", what, 0)
	for rest := path; err == nil && rest != ""; {
		begin := 0
		for begin < len(rest) && rest[begin] == '/' {
			begin++
		}
		end := begin
		for end < len(rest) && rest[end] != '/' {
			end++
		}
		name := rest[begin:end]
		rest = rest[end:]
		if name == "" {
			break
		}
		var next int
		next, err = step(at, name, what)
		_ = syscall.Close(at) // nothing was written to it
		at = next
	}
	if err != nil {
		return 0, err
	}
	return at, nil
}

// step opens a name in a folder; the name must not be a link.
func step(at int, name string, what int) (int, error) {
	if name == ".." {
		return 0, syscall.EINVAL
	}
	next, err := syscall.Openat(at, name, what, 0)
	if err != nil {
		return 0, err
	}
	var info syscall.Stat_t
	if err = syscall.Fstat(next, &info); err == nil && info.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		err = syscall.ELOOP
	}
	if err != nil {
		_ = syscall.Close(next) // nothing was written to it
		return 0, err
	}
	return next, nil
}

// check returns ESTALE if a descriptor is of another file.
func (i Identity) check(fd int) error {
	if i == (Identity{}) {
		return nil
	}
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return err
	}
	if (Identity{info.Dev, info.Ino}) != i {
		return syscall.ESTALE
	}
	return nil
}

// emptyPath is the path that means a descriptor itself.
func emptyPath() uintptr { return uintptr(unsafe.Pointer(&nul)) }

// setattr adds attributes to a mount, and with atRecursive to all mounts below it.
func setattr(fd int, flags, attributes uintptr) error {
	attr := [4]uint64{uint64(attributes)} // struct mount_attr
	_, _, errno := syscall.RawSyscall6(sysMountSetattr, uintptr(fd), emptyPath(), atEmptyPath|flags, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
