package launch

import "golang.org/x/sys/unix"

// areLocal reports whether the files of a program and its working directory are on local
// file systems: no server and no other program answers for them.
func areLocal(p programs, dir string) bool {
	var fs unix.Statfs_t
	for _, fd := range p.files[:p.n] {
		if unix.Fstatfs(fd, &fs) != nil || !isLocalType(uint32(fs.Type)) {
			return false
		}
	}
	return p.n > 0 && (dir == "" || unix.Statfs(dir, &fs) == nil && isLocalType(uint32(fs.Type)))
}

func isLocalType(magic uint32) bool {
	switch magic {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.PROC_SUPER_MAGIC:
		return true
	}
	return false
}
