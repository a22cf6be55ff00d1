//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
)

// judge runs a filter as the kernel would, on one system call.
func judge(t *testing.T, filter string, arch, call uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64) // struct seccomp_data
	binary.NativeEndian.PutUint32(data[0:], call)
	binary.NativeEndian.PutUint32(data[4:], arch)
	for i, arg := range args {
		binary.NativeEndian.PutUint64(data[16+8*i:], arg)
	}
	accumulator := uint32(0)
	for pc := 0; pc < len(filter)/8; pc++ {
		at := []byte(filter[8*pc : 8*pc+8])
		code, jt, jf, k := binary.NativeEndian.Uint16(at), int(at[2]), int(at[3]), binary.NativeEndian.Uint32(at[4:])
		jump := func(test bool) {
			if test {
				pc += jt
			} else {
				pc += jf
			}
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = binary.NativeEndian.Uint32(data[k:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			accumulator &= k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(accumulator == k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(accumulator >= k)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(accumulator&k != 0)
		case unix.BPF_RET | unix.BPF_K:
			return k
		default:
			t.Fatalf("instruction %d is %#x, which is not known here", pc, code)
		}
	}
	t.Fatal("the filter ends without an answer")
	return 0
}

// TestT72Filter: the filter of system calls refuses what it is to refuse, also
// by the ways around it: other kinds of machines, other numbers of the same one, clone3.
func TestT72Filter(t *testing.T) {
	f := filter(true, true)
	const eperm, enosys, family = deny | uint32(unix.EPERM), deny | uint32(unix.ENOSYS), deny | uint32(unix.EAFNOSUPPORT)
	for _, c := range []struct {
		name string
		arch uint32
		call uint32
		args []uint64
		want uint32
	}{
		{"read", auditArch, unix.SYS_READ, nil, allow},
		{"execve", auditArch, unix.SYS_EXECVE, nil, allow},
		{"a call of the future", auditArch, 4000, nil, allow},
		{"ptrace", auditArch, unix.SYS_PTRACE, nil, eperm},
		{"io_uring", auditArch, unix.SYS_IO_URING_SETUP, nil, eperm},
		{"another machine", unix.AUDIT_ARCH_I386, unix.SYS_READ, nil, enosys},
		{"clone3", auditArch, unix.SYS_CLONE3, nil, enosys},
		{"a thread", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"fork", auditArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"a user namespace", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		{"a cgroup namespace", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWCGROUP}, eperm},
		{"memory", auditArch, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, allow},
		{"huge pages", auditArch, unix.SYS_MMAP, []uint64{0, 2 << 20, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}, deny | uint32(unix.ENOMEM)},
		{"a file of memory", auditArch, unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_CLOEXEC}, allow},
		{"a file of huge pages", auditArch, unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_HUGETLB}, deny | uint32(unix.ENOMEM)},
		{"shared memory", auditArch, unix.SYS_SHMGET, []uint64{0, 4096, 0o1600}, allow},
		{"shared huge pages", auditArch, unix.SYS_SHMGET, []uint64{0, 2 << 20, 0o5600}, deny | uint32(unix.ENOMEM)},
		{"a socket of files", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, allow},
		{"tcp", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		{"udp", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}, allow},
		{"raw", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC}, eperm},
		{"raw 6", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_RAW}, eperm},
		{"packets of old", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, 10}, eperm},
		{"sctp", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_SEQPACKET}, eperm},
		{"packets", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW}, family},
		{"netlink", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW}, family},
		{"virtual machines", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, family},
		{"the kernel's ciphers", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, family},
		{"size of a terminal", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"typing into a terminal", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, eperm},
		{"the same, hidden", auditArch, unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, eperm},
		{"pasting into a console", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, eperm},
		{"asking for the persona", auditArch, unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
		{"another persona", auditArch, unix.SYS_PERSONALITY, []uint64{0x40000}, eperm},
	} {
		if got := judge(t, f, c.arch, c.call, c.args...); got != c.want {
			t.Errorf("%s: %#x; want %#x", c.name, got, c.want)
		}
	}
	for _, call := range append(forbidden, forbiddenHere...) {
		if got := judge(t, f, auditArch, call); got != eperm {
			t.Errorf("call %d: %#x; want EPERM", call, got)
		}
		if otherABI != 0 {
			if got := judge(t, f, auditArch, call|otherABI); got != enosys {
				t.Errorf("call %d by x32: %#x; want ENOSYS", call, got)
			}
		}
	}
}

// TestM7NoSetID: a process that can change files of the machine cannot leave a program there that runs as its user, by no call that
// sets the mode of a file. It can change files otherwise.
func TestM7NoSetID(t *testing.T) {
	const eperm, enosys = deny | uint32(unix.EPERM), deny | uint32(unix.ENOSYS)
	f, free := filter(false, false), filter(true, true)
	for _, m := range append(modes, modesHere...) {
		for mode, want := range map[uint64]uint32{0o644: allow, 0o1777: allow, 0o4755: eperm, 0o2755: eperm, 0o106644: eperm, 1<<32 | 0o4755: eperm} {
			args := make([]uint64, 6)
			args[m.mode] = mode
			if m.flags >= 0 {
				args[m.flags] = unix.O_RDWR
				if got := judge(t, f, auditArch, m.call, args...); got != allow {
					t.Errorf("call %d opens with mode %o: %#x", m.call, mode, got)
				}
				args[m.flags] = unix.O_TMPFILE | unix.O_RDWR
				if got := judge(t, f, auditArch, m.call, args...); got != want {
					t.Errorf("call %d makes a temporary file with mode %o: %#x; want %#x", m.call, mode, got, want)
				}
				args[m.flags] = unix.O_CREAT | unix.O_WRONLY
			}
			if got := judge(t, f, auditArch, m.call, args...); got != want {
				t.Errorf("call %d with mode %o: %#x; want %#x", m.call, mode, got, want)
			}
			if got := judge(t, free, auditArch, m.call, args...); got != allow {
				t.Errorf("call %d with mode %o, where no file of the machine can be changed: %#x", m.call, mode, got)
			}
		}
	}
	if got := judge(t, f, auditArch, unix.SYS_OPENAT2); got != enosys {
		t.Errorf("openat2 is %#x; want ENOSYS", got)
	}
}

// TestT72NoRealTime: what Orla's user may (limits.conf gives it to many) a tool may
// not: processes with a real-time policy are held by no limit of processors.
func TestT72NoRealTime(t *testing.T) {
	none := map[uint64]bool{unix.RLIMIT_RTPRIO: false, unix.RLIMIT_NICE: false}
	for _, l := range planOf(launch.Spec{}, view{}, Options{}).Limits {
		if _, ok := none[l.Resource]; ok && l.Most == 0 {
			none[l.Resource] = true
		}
	}
	if !none[unix.RLIMIT_RTPRIO] || !none[unix.RLIMIT_NICE] {
		t.Errorf("limits that are none: %v", none)
	}
}

// TestLandlockAsked: of each version of Landlock as much is asked as it knows.
func TestLandlockAsked(t *testing.T) {
	if l := landlock(0, nil, false); l.Attr != "" || l.Rules != nil {
		t.Errorf("without Landlock: %+v", l)
	}
	for version, want := range map[int]struct {
		size  int
		files uint64
	}{1: {8, 1<<13 - 1}, 2: {8, 1<<14 - 1}, 3: {8, 1<<15 - 1}, 4: {16, 1<<15 - 1}, 5: {16, 1<<16 - 1}, 6: {24, 1<<16 - 1}, 9: {24, 1<<16 - 1}} {
		l := landlock(version, nil, false)
		if files := binary.NativeEndian.Uint64([]byte(l.Attr)); len(l.Attr) != want.size || files != want.files {
			t.Errorf("version %d: %d bytes, %#x; want %d, %#x", version, len(l.Attr), files, want.size, want.files)
		}
		for _, r := range l.Rules {
			if r.Access&^want.files != 0 || r.Access&(unix.LANDLOCK_ACCESS_FS_MAKE_CHAR|unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK) != 0 {
				t.Errorf("version %d: %s may %#x", version, r.Path, r.Access)
			}
		}
	}
}
