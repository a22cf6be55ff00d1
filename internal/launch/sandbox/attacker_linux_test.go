//go:build amd64 || arm64

package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attackVar makes the test binary try one attack; argVar is what it needs for that.
const (
	attackVar = "ATTACK"
	argVar    = "ATTACK_ARG"
)

// all is the attack that tries every one, and says how each ends. It cannot be used
// where one that worked would change what the next one finds.
const all = "all"

// attack tries what its name says. It prints "done" if it worked, or the error.
func attack(name, arg string) {
	runtime.LockOSThread()
	if name != all {
		fmt.Println(outcome(attacks[name](arg)))
		return
	}
	args := map[string]string{}
	for line := range strings.Lines(arg) {
		name, one, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		args[name] = one
	}
	for name, try := range attacks {
		fmt.Println(name, outcome(try(args[name])))
	}
}

func outcome(err error) string {
	if err == nil {
		return "done"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// errNot is what an attack returns that worked for the kernel, and did nothing.
var errNot = errors.New("no effect")

func raw(call uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.RawSyscall6(call, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// refusedAs returns nil if the kernel looked at a call and found its arguments
// wrong: so nothing was in its way.
func refusedAs(err, wanted error) error {
	if errors.Is(err, wanted) {
		return nil
	}
	return err
}

// attacks are what a hostile program may try. Each works for root outside.
var attacks = map[string]func(arg string) error{
	"write":         write,
	"write-system":  func(string) error { return write("/usr/bin/orla-attack") },
	"write-root":    func(string) error { return write("/orla-attack") },
	"write-config":  func(string) error { return write("/etc/orla-attack") },
	"append-passwd": func(string) error { return appendTo("/etc/passwd") },
	"mount":         func(string) error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") },
	"remount":       func(string) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"unmount":       func(string) error { return refusedAs(unix.Unmount("/nowhere", 0), unix.ENOENT) },
	"fsopen":        func(string) error { _, err := unix.Fsopen("tmpfs", 0); return err },
	"chroot":        func(string) error { return unix.Chroot("/") },
	"mknod":         func(string) error { return mknod("/tmp/orla-attack-null") },
	"fill-tmp":      func(string) error { return fill("/tmp/orla-attack-full", 17<<20) },
	"run-from-tmp":  func(string) error { return runFrom("/tmp/orla-attack-run") },
	"root-again":    func(string) error { return unix.Setresuid(0, 0, 0) },
	"groups-again":  func(string) error { return unix.Setgroups([]int{0}) },
	"setuid":        setuid,
	"shadow":        func(string) error { _, err := os.ReadFile("/etc/shadow"); return err },
	"environments":  environments,
	"ptrace":        func(string) error { return trace() },
	"read-memory":   func(string) error { return readMemory(os.Getpid()) },
	"signal":        signalTo,
	"tcp":           func(arg string) error { return dial("tcp", arg) },
	"udp":           func(arg string) error { return dial("udp", arg) },
	"abstract":      func(arg string) error { return dial("unix", arg) },
	"raw-socket":    func(string) error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); return err },
	"packet-socket": func(string) error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
	"netlink":       func(string) error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err },
	"key": func(string) error {
		_, err := unix.AddKey("user", "orla", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"user-namespace": func(string) error {
		return start(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER})
	},
	"mount-namespace": func(string) error { return unix.Unshare(unix.CLONE_NEWNS) },
	"net-namespace":   func(string) error { return start(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}) },
	"join-namespace":  func(string) error { return refusedAs(unix.Setns(-1, 0), unix.EBADF) },
	"clone3":          func(string) error { return refusedAs(raw(unix.SYS_CLONE3, 0, 0), unix.EINVAL) },
	"bpf":             func(string) error { return refusedAs(raw(unix.SYS_BPF, 99), unix.EINVAL) },
	"perf":            func(string) error { return refusedAs(raw(unix.SYS_PERF_EVENT_OPEN), unix.EFAULT) },
	"aio":             func(string) error { return refusedAs(raw(unix.SYS_IO_SETUP, 1), unix.EFAULT) },
	"lease":           func(string) error { return takeLease("/tmp/orla-attack-lease") },
	"forge-tag":       func(string) error { return forgeTag() },
	"io_uring":        func(string) error { return refusedAs(raw(unix.SYS_IO_URING_SETUP, 1), unix.EFAULT) },
	"handles":         func(string) error { return refusedAs(raw(unix.SYS_OPEN_BY_HANDLE_AT), unix.EFAULT) },
	"reboot":          func(string) error { return refusedAs(raw(unix.SYS_REBOOT), unix.EINVAL) },
	"host-name":       func(string) error { return unix.Sethostname([]byte("taken")) },
	"persona":         func(string) error { return raw(unix.SYS_PERSONALITY, 0x40000) },
	"type-ahead":      func(string) error { return refusedAs(raw(unix.SYS_IOCTL, 0, unix.TIOCSTI), unix.ENOTTY) },
	"settings":        func(string) error { return os.WriteFile("/proc/sys/kernel/hostname", []byte("taken"), 0) },
	"kernel-log":      func(string) error { return open("/dev/kmsg") },
	"disks":           disks,
	"parent-program":  func(string) error { return open(fmt.Sprintf("/proc/%d/exe", os.Getppid())) },
	"parent-memory":   func(string) error { return open(fmt.Sprintf("/proc/%d/mem", os.Getppid())) },
	"control-groups":  func(string) error { return listed("/sys/fs/cgroup") },
}

// takeLease takes a lease on a file, for which whoever opens it has to wait.
func takeLease(path string) (err error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(unix.Close(fd), unix.Unlink(path)) }()
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return err
}

// forgeTag sets the limit by which Orla knows whose a process is.
func forgeTag() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &have); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: 1 << 40, Max: have.Max}); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_LOCKS, &have)
}

func write(path string) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	return os.Remove(path)
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func mknod(path string) error {
	defer func() { _ = os.Remove(path) }()
	return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
}

func fill(path string, bytes int) error {
	defer func() { _ = os.Remove(path) }()
	return os.WriteFile(path, make([]byte, bytes), 0o600)
}

func runFrom(path string) error {
	defer func() { _ = os.Remove(path) }()
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		return err
	}
	return exec.Command(path).Run()
}

// setuid runs a copy of id that belongs to root and is marked so.
func setuid(program string) error {
	out, err := exec.Command(program, "-u").Output()
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(out)) != "0" {
		return errNot
	}
	return nil
}

// environments looks for a secret in the environment of any other process. What
// it is told has a star in it, since it is in its own environment.
func environments(arg string) error {
	secret := strings.ReplaceAll(arg, "*", "")
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		data, _ := os.ReadFile(file) // most are of others
		if file != fmt.Sprintf("/proc/%d/environ", os.Getpid()) && strings.Contains(string(data), secret) {
			return nil
		}
	}
	return errors.Join(err, errNot)
}

func trace() error {
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	return unix.PtraceSeize(cmd.Process.Pid)
}

func readMemory(pid int) error {
	var from, to [1]byte
	local := []unix.Iovec{{Base: &to[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from)), Len: 1}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return err
}

func signalTo(arg string) error {
	var pid int
	if _, err := fmt.Sscan(arg, &pid); err != nil {
		return err
	}
	return unix.Kill(pid, unix.SIGCONT)
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, time.Minute)
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("hello"))
	return errors.Join(err, c.Close())
}

// start starts something with attributes.
func start(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = attr
	return cmd.Run()
}

func open(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// disks looks for something that is not a plain file and holds files.
func disks(string) error {
	entries, err := os.ReadDir("/dev")
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 && e.Type()&os.ModeCharDevice == 0 {
			return nil
		}
	}
	return errors.Join(err, errNot)
}

func listed(path string) error {
	entries, err := os.ReadDir(path)
	if err == nil && len(entries) == 0 {
		return errNot
	}
	return err
}
