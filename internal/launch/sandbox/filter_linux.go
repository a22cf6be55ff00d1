//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// forbidden are the system calls that a process is refused (EPERM): those that
// reach other processes, the kernel's own workings, or what namespaces keep apart.
// Most of them would fail without capabilities too; those have had most
// of the faults by which sandboxes were left.
var forbidden = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_SETUP, // whose events come out of one pool for the whole machine
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_OPEN_TREE_ATTR,
}

// hugePages are the calls that take huge pages, and the flag by which they do. Where
// a machine has set some aside, the cgroup's limit of memory does not count them.
var hugePages = [...]struct{ call, arg, flag uint32 }{
	{unix.SYS_MMAP, 3, unix.MAP_HUGETLB},
	{unix.SYS_MEMFD_CREATE, 1, unix.MFD_HUGETLB},
	{unix.SYS_SHMGET, 2, 0o4000}, // SHM_HUGETLB
}

// newNamespaces are the flags of clone that make namespaces. clone3, which keeps
// them where no filter sees them, is refused as if the kernel did not have it:
// then programs use clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// The places in struct seccomp_data.
const (
	atCall = 0
	atArch = 4
	atArgs = 16 // of eight bytes each, the low half first
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	deny  = unix.SECCOMP_RET_ERRNO
)

// program is a filter in the making.
type program []unix.SockFilter

func (p *program) do(code uint16, k uint32) { *p = append(*p, unix.SockFilter{Code: code, K: k}) }

func (p *program) load(at uint32) { p.do(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }
func (p *program) ret(k uint32)   { p.do(unix.BPF_RET|unix.BPF_K, k) }

// unless skips what then makes if the test of k does not hold.
func (p *program) unless(test uint16, k uint32, then func()) {
	at := len(*p)
	p.do(unix.BPF_JMP|test|unix.BPF_K, k)
	then()
	(*p)[at].Jf = uint8(len(*p) - at - 1)
}

// when makes what is done with a value.
func (p *program) when(value uint32, then func()) { p.unless(unix.BPF_JEQ, value, then) }

// filter returns the seccomp filter, as the kernel takes it. What it does not
// name is allowed: the kernel asks of each process what it may, and this one may
// nothing; a list of what is allowed would break programs with each new libc.
func filter() string {
	var p program
	p.load(atArch)
	p.unless(unix.BPF_JEQ, auditArch, func() { p.do(unix.BPF_JMP|unix.BPF_JA, 1) })
	p.ret(deny | uint32(unix.ENOSYS)) // calls of another kind of machine, which have other numbers
	p.load(atCall)
	if otherABI != 0 {
		p.unless(unix.BPF_JGE, otherABI, func() { p.ret(deny | uint32(unix.ENOSYS)) })
	}
	p.when(unix.SYS_CLONE3, func() { p.ret(deny | uint32(unix.ENOSYS)) })
	for _, call := range append(forbidden, forbiddenHere...) {
		p.when(call, func() { p.ret(deny | uint32(unix.EPERM)) })
	}
	p.when(unix.SYS_CLONE, func() {
		p.load(atArgs)
		p.unless(unix.BPF_JSET, newNamespaces, func() { p.ret(deny | uint32(unix.EPERM)) })
		p.ret(allow)
	})
	p.when(unix.SYS_SOCKET, p.sockets)
	for _, huge := range hugePages {
		p.when(huge.call, func() {
			p.load(atArgs + 8*huge.arg)
			p.unless(unix.BPF_JSET, huge.flag, func() { p.ret(deny | uint32(unix.ENOMEM)) })
			p.ret(allow)
		})
	}
	p.when(unix.SYS_IOCTL, func() { // typing into a terminal, which there is none of
		p.load(atArgs + 8)
		for _, request := range [...]uint32{unix.TIOCSTI, unix.TIOCLINUX} {
			p.when(request, func() { p.ret(deny | uint32(unix.EPERM)) })
		}
		p.ret(allow)
	})
	p.when(unix.SYS_FCNTL, func() { // a lease on a file of the package would stop Orla from reading it
		p.load(atArgs + 8)
		p.when(unix.F_SETLEASE, func() { p.ret(deny | uint32(unix.EPERM)) })
		p.ret(allow)
	})
	p.when(unix.SYS_PERSONALITY, func() { // to ask for it, or the plain one
		p.load(atArgs)
		for _, persona := range [...]uint32{0, ^uint32(0)} {
			p.when(persona, func() { p.ret(allow) })
		}
		p.ret(deny | uint32(unix.EPERM))
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

// sockets allows sockets of files and of the internet, of the plain types. There
// is no network that they would lead to.
func (p *program) sockets() {
	p.load(atArgs)
	p.when(unix.AF_UNIX, func() { p.ret(allow) })
	for _, family := range [...]uint32{unix.AF_INET, unix.AF_INET6} {
		p.when(family, func() {
			p.load(atArgs + 8)
			p.do(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf) // the rest are flags
			for _, kind := range [...]uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				p.when(kind, func() { p.ret(allow) })
			}
			p.ret(deny | uint32(unix.EPERM))
		})
	}
	p.ret(deny | uint32(unix.EAFNOSUPPORT))
}
