//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/shim"
)

// The Landlock rights that are given for some paths. All other rights are given for none.
const (
	mayRun   = unix.LANDLOCK_ACCESS_FS_EXECUTE
	mayRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	mayMake  = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// landlockVersion returns the kernel's version of the Landlock ABI; 0 without Landlock.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// landlock returns Landlock rules that repeat what the mounts, the namespaces and the filter
// enforce. They are a second barrier; without Landlock, the first is still complete. written are the granted paths
// that the process can change, and whether each is a folder.
func landlock(version int, written map[string]bool, network bool) shim.Landlock {
	if version < 1 {
		return shim.Landlock{}
	}
	files := uint64(1)<<13 - 1
	for _, since := range [...]int{2, 3, 5} { // refer, truncate, ioctl of devices
		if version >= since {
			files = files<<1 | 1
		}
	}
	attr := binary.NativeEndian.AppendUint64(nil, files)
	if version >= 4 && !network {
		attr = binary.NativeEndian.AppendUint64(attr, unix.LANDLOCK_ACCESS_NET_BIND_TCP|unix.LANDLOCK_ACCESS_NET_CONNECT_TCP)
	}
	if version >= 4 && network {
		attr = binary.NativeEndian.AppendUint64(attr, 0)
	}
	if version >= 6 {
		attr = binary.NativeEndian.AppendUint64(attr, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET|unix.LANDLOCK_SCOPE_SIGNAL)
	}
	rules := []shim.Rule{
		{Path: "/", Access: files & (mayRun | mayRead)},
		{Path: "/dev", Access: files & mayWrite},
		{Path: "/proc", Access: files & mayWrite}, // a thread sets its own name there, for example
		{Path: "/tmp", Access: files & (mayWrite | mayMake)},
	}
	for _, path := range slices.Sorted(maps.Keys(written)) {
		access := uint64(mayWrite)
		if written[path] {
			access |= mayMake
		}
		rules = append(rules, shim.Rule{Path: path, Access: files & access})
	}
	return shim.Landlock{Attr: string(attr), Rules: rules}
}
