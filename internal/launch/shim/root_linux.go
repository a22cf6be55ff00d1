//go:build amd64 || arm64

package shim

import (
	"syscall"
	"unsafe"
)

const (
	sysCloseRange   = 436
	sysMountSetattr = 442

	attrReadOnly = 0x1 // MOUNT_ATTR_RDONLY and so on
	attrNoSuid   = 0x2
	attrNoDev    = 0x4
	attrNoExec   = 0x8

	atFdcwd     = -100
	atRecursive = 0x8000

	nothingSpecial = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
)

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
	if f := try("a read-only root", setattr("/", 0, attrReadOnly)); f.is() {
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
	case Folder:
		if err := syscall.Mkdir(e.Path, 0o755); err != syscall.EEXIST {
			return try("folder "+e.Path, err)
		}
		return failure{}
	case Link:
		return try("link "+e.Path, syscall.Symlink(e.Data, e.Path))
	case File:
		return try("file "+e.Path, create(e.Path, e.Data))
	case Bind:
		if f := try("show "+e.Path, syscall.Mount(Old+e.Data, e.Path, "", syscall.MS_BIND|syscall.MS_REC, "")); f.is() {
			return f
		}
		return try("show "+e.Path+" read-only", setattr(e.Path, atRecursive, attrReadOnly|attrNoSuid|attrNoDev))
	case Share:
		if f := try("show "+e.Path, syscall.Mount(Old+e.Data, e.Path, "", syscall.MS_BIND|syscall.MS_REC, "")); f.is() {
			return f
		}
		return try("show "+e.Path+" without programs", setattr(e.Path, atRecursive, attrNoExec|attrNoSuid|attrNoDev))
	case Device:
		if f := try("device "+e.Path, syscall.Mount(Old+e.Data, e.Path, "", syscall.MS_BIND, "")); f.is() {
			return f
		}
		return try("device "+e.Path, setattr(e.Path, 0, attrReadOnly|attrNoSuid|attrNoExec))
	case Memory:
		return try("memory at "+e.Path, syscall.Mount("tmpfs", e.Path, "tmpfs", nothingSpecial, e.Data))
	case Seal:
		return try("a read-only "+e.Path, setattr(e.Path, 0, attrReadOnly))
	case Proc:
		return try("processes at "+e.Path, syscall.Mount("proc", e.Path, "proc", nothingSpecial, e.Data))
	}
	return failure{"an entry of the plan", syscall.EINVAL}
}

func create(path, content string) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if _, err := syscall.Write(fd, []byte(content)); err != nil {
		_ = syscall.Close(fd) // the stage ends
		return err
	}
	return syscall.Close(fd)
}

// setattr adds attributes to the mount at a path, and with atRecursive to all mounts below it.
func setattr(path string, flags, attributes uintptr) error {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	attr := [4]uint64{uint64(attributes)} // struct mount_attr
	fd := atFdcwd
	_, _, errno := syscall.RawSyscall6(sysMountSetattr, uintptr(fd), uintptr(unsafe.Pointer(name)), flags, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
