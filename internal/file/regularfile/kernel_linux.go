package regularfile

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// kernelMade are the file systems whose files the kernel generates while they are read. The files
// look like regular files, but some block until there is data (/proc/kmsg), even with O_NONBLOCK,
// and some give their data to only one reader.
var kernelMade = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
	unix.BPF_FS_MAGIC, unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC,
	unix.RDTGROUP_SUPER_MAGIC, unix.USBDEVICE_SUPER_MAGIC, unix.XENFS_SUPER_MAGIC,
	0x62656570, // configfs
	0xa647361,  // FunctionFS: its files are USB endpoints
}

// openIsKernelMade is isKernelMade for an os.File.
func openIsKernelMade(f *os.File) (is bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = isKernelMade(int(fd)) })
	return err == nil && is
}

// isKernelMade reports whether an open file is on one of these file systems; false if that is not
// known.
func isKernelMade(fd int) bool {
	var fs unix.Statfs_t
	_, err := again(func() (int, error) { return 0, unix.Fstatfs(fd, &fs) })
	return err == nil && slices.Contains(kernelMade, uint32(fs.Type))
}
