//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// forbidden are the system calls that fail with EPERM: those that affect other processes, the kernel
// itself, or what namespaces isolate. Most of them would also fail without capabilities; but most of
// the bugs that let programs escape from sandboxes were in them.
var forbidden = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_SETUP, // its events come from one pool for the whole machine
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_OPEN_TREE_ATTR,
}

// hugePages are the calls that allocate huge pages, and the flag that does it. Huge pages that a
// machine has reserved do not count towards the memory limit of the cgroup.
var hugePages = [...]struct{ call, arg, flag uint32 }{
	{unix.SYS_MMAP, 3, unix.MAP_HUGETLB},
	{unix.SYS_MEMFD_CREATE, 1, unix.MFD_HUGETLB},
	{unix.SYS_SHMGET, 2, 0o4000}, // SHM_HUGETLB
}

// newNamespaces are the flags of clone that make namespaces. clone3 has its flags in memory, where
// no filter can check them; it fails with ENOSYS, so programs use clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// modeCall is a call that sets the mode of a file: the argument that has it, and the one with the flags that say whether it does; -1 for
// always.
type modeCall struct {
	call        uint32
	mode, flags int
}

// modes are those calls. openat2 has its mode in memory; it fails with ENOSYS, so programs use openat.
var modes = []modeCall{
	{unix.SYS_FCHMOD, 1, -1}, {unix.SYS_FCHMODAT, 2, -1}, {unix.SYS_FCHMODAT2, 2, -1}, {unix.SYS_MKNODAT, 2, -1}, {unix.SYS_OPENAT, 3, 2},
}

const (
	setID = unix.S_ISUID | unix.S_ISGID
	makes = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
)

// Offsets in struct seccomp_data.
const (
	atCall = 0
	atArch = 4
	atArgs = 16 // eight bytes each, with the low half first
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	deny  = unix.SECCOMP_RET_ERRNO
)

// program is a filter while it is built.
type program []unix.SockFilter

func (p *program) do(code uint16, k uint32) { *p = append(*p, unix.SockFilter{Code: code, K: k}) }

func (p *program) load(at uint32) { p.do(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }
func (p *program) ret(k uint32)   { p.do(unix.BPF_RET|unix.BPF_K, k) }

// refuse makes the call fail with an error.
func (p *program) refuse(errno unix.Errno) { p.ret(deny | uint32(errno)) }

// unless adds a test, and the instructions of then, which are skipped if the test fails.
func (p *program) unless(test uint16, k uint32, then func()) {
	at := len(*p)
	p.do(unix.BPF_JMP|test|unix.BPF_K, k)
	then()
	(*p)[at].Jf = uint8(len(*p) - at - 1)
}

// when adds the instructions of then for one value.
func (p *program) when(value uint32, then func()) { p.unless(unix.BPF_JEQ, value, then) }

// filter returns the seccomp filter in the kernel's format. It allows the calls that it does not
// name: the kernel checks the rights of each process, and this one has none. A list of allowed calls
// would break programs with each new libc. unixSockets says whether the process can make unix sockets; pairs of them it can
// make in any case. setIDs says whether it can make programs that run as their owner: not if it can change files of the machine.
func filter(unixSockets, setIDs bool) string {
	var p program
	p.load(atArch)
	p.unless(unix.BPF_JEQ, auditArch, func() { p.do(unix.BPF_JMP|unix.BPF_JA, 1) })
	p.refuse(unix.ENOSYS) // calls of another architecture, which have other numbers
	p.load(atCall)
	if otherABI != 0 {
		p.unless(unix.BPF_JGE, otherABI, func() { p.refuse(unix.ENOSYS) })
	}
	p.when(unix.SYS_CLONE3, func() { p.refuse(unix.ENOSYS) })
	for _, call := range append(forbidden, forbiddenHere...) {
		p.when(call, func() { p.refuse(unix.EPERM) })
	}
	p.when(unix.SYS_CLONE, func() {
		p.load(atArgs)
		p.unless(unix.BPF_JSET, newNamespaces, func() { p.refuse(unix.EPERM) })
		p.ret(allow)
	})
	p.when(unix.SYS_SOCKET, func() { p.sockets(unixSockets) })
	for _, huge := range hugePages {
		p.when(huge.call, func() {
			p.load(atArgs + 8*huge.arg)
			p.unless(unix.BPF_JSET, huge.flag, func() { p.refuse(unix.ENOMEM) })
			p.ret(allow)
		})
	}
	if !setIDs {
		p.noSetID()
	}
	p.when(unix.SYS_IOCTL, func() { // input to a terminal; the process has none
		p.load(atArgs + 8)
		for _, request := range [...]uint32{unix.TIOCSTI, unix.TIOCLINUX} {
			p.when(request, func() { p.refuse(unix.EPERM) })
		}
		p.ret(allow)
	})
	p.when(unix.SYS_FCNTL, func() { // a lease on a file of the package could keep Orla from reading it
		p.load(atArgs + 8)
		p.when(unix.F_SETLEASE, func() { p.refuse(unix.EPERM) })
		p.ret(allow)
	})
	p.when(unix.SYS_PERSONALITY, func() { // a query, or the default
		p.load(atArgs)
		for _, persona := range [...]uint32{0, ^uint32(0)} {
			p.when(persona, func() { p.ret(allow) })
		}
		p.refuse(unix.EPERM)
	})
	p.ret(allow)
	var out []byte
	for _, i := range p {
		out = binary.NativeEndian.AppendUint16(out, i.Code)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return string(out)
}

// noSetID refuses modes of files by which others would run them as their owner.
func (p *program) noSetID() {
	p.when(unix.SYS_OPENAT2, func() { p.refuse(unix.ENOSYS) })
	for _, m := range append(modes, modesHere...) {
		p.when(m.call, func() {
			if m.flags >= 0 {
				p.load(atArgs + 8*uint32(m.flags))                 //nolint:gosec // the number of an argument
				p.do(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, makes) // the next instruction, or
				(*p)[len(*p)-1].Jt = 1                             // the one after it
				p.ret(allow)                                       // it makes no file
			}
			p.load(atArgs + 8*uint32(m.mode)) //nolint:gosec // the number of an argument
			p.unless(unix.BPF_JSET, setID, func() { p.refuse(unix.EPERM) })
			p.ret(allow)
		})
	}
}

// sockets allows Unix and internet sockets of the ordinary types. Without a grant the process has no network that
// internet sockets could reach.
func (p *program) sockets(unixSockets bool) {
	p.load(atArgs)
	if unixSockets {
		p.when(unix.AF_UNIX, func() { p.ret(allow) })
	}
	for _, family := range [...]uint32{unix.AF_INET, unix.AF_INET6} {
		p.when(family, func() {
			p.load(atArgs + 8)
			p.do(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf) // the other bits are flags
			for _, kind := range [...]uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				p.when(kind, func() { p.ret(allow) })
			}
			p.refuse(unix.EPERM)
		})
	}
	p.refuse(unix.EAFNOSUPPORT)
}
