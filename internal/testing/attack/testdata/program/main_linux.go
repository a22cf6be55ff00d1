// Command program attacks the place that it runs in; see package attack.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// attacks are the subcommands. Each returns what broke, or nothing, and what it saw.
var attacks = map[string]func(args []string) (broke, saw string){
	"write":    write,    // anywhere but /tmp
	"mount":    mount,    // or remount, or unmount
	"ptrace":   ptrace,   // PID: of a process outside
	"raw":      raw,      // sockets of any packets
	"send":     send,     // NETWORK ADDRESS: a word to somebody outside; the test listens
	"abstract": abstract, // NAME: a unix socket outside that has no file
	"setuid":   setuid,   // PATH: a copy of this program that is root's, with the bit
	"euid":     euid,     // what that copy is asked
	"read":     read,     // PATH: a file that nobody may see
	"environ":  environ,  // WORD: in the environment of a process outside
	"forks":    forks,    // MOST: processes
	"memory":   memory,   // MOST: bytes; it should not live to tell
	"cpu":      cpu,      // MOST: processors, such as 0.5
	"keys":     keys,     // the kernel's keyrings
	"huge":     huge,     // pages that no limit of memory counts
	"tag":      tag,      // the limit by which Orla knows whose a process is
	"userns":   userns,   // a user namespace, where all capabilities are had anew
	"fds":      fds,      // descriptors that were left open
	"daemon":   daemon,   // WORD: leaves a process of a session of its own, with WORD in its command line
	"hang":     hang,     // what forks and daemon start
}

func main() {
	if os.Args[1] == "each" {
		each(os.Args[2:])
		return
	}
	broke, saw := attacks[os.Args[1]](os.Args[2:])
	if broke != "" {
		fmt.Println("BROKE:", broke)
		os.Exit(1)
	}
	fmt.Println("held:", saw)
}

// each makes several attacks, with their arguments, which "--" parts. Each line
// begins with the attack's name.
func each(args []string) {
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		one := args[:end]
		args = args[min(end+1, len(args)):]
		if broke, saw := attacks[one[0]](one[1:]); broke != "" {
			fmt.Printf("%s: BROKE: %s\n", one[0], broke)
		} else {
			fmt.Printf("%s: held: %s\n", one[0], saw)
		}
	}
}

// collect keeps what attempts came to.
type collect struct{ broke, held []string }

func (c *collect) add(what string, err error) {
	if err == nil {
		c.broke = append(c.broke, what)
		return
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		err = no
	}
	c.held = append(c.held, what+": "+err.Error())
}

func (c *collect) result() (broke, saw string) {
	return strings.Join(c.broke, ", "), strings.Join(c.held, ", ")
}

func write([]string) (broke, saw string) {
	var c collect
	folders := []string{"/", "/etc", "/bin", "/usr", "/usr/bin", "/lib", "/var", "/var/tmp", "/run", "/home", "/root", "/open", "/opt", "/srv", "/proc", "/sys", "/sys/fs/cgroup", "/dev", "."}
	if self, err := os.Executable(); err == nil {
		folders = append(folders, filepath.Dir(self))
	}
	for _, folder := range folders {
		if here, err := filepath.Abs(folder); err != nil || here == "/tmp" {
			continue
		}
		path := filepath.Join(folder, "broken")
		err := os.WriteFile(path, []byte("x"), 0o600)
		if err == nil {
			_ = os.Remove(path)
		}
		c.add("write "+path, err)
	}
	for _, path := range []string{"/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/fs/cgroup/cgroup.procs"} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
		c.add("open "+path, err)
	}
	return c.result()
}

func mount([]string) (broke, saw string) {
	var c collect
	c.add("mount tmpfs", syscall.Mount("x", "/tmp", "tmpfs", 0, ""))
	c.add("remount /", syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	c.add("bind /", syscall.Mount("/", "/tmp", "", syscall.MS_BIND, ""))
	c.add("proc", syscall.Mount("proc", "/tmp", "proc", 0, ""))
	c.add("unmount /proc", syscall.Unmount("/proc", syscall.MNT_DETACH))
	c.add("pivot_root", syscall.PivotRoot("/tmp", "/tmp"))
	c.add("chroot", syscall.Chroot("/tmp"))
	c.add("mknod", syscall.Mknod("/tmp/mem", syscall.S_IFCHR|0o600, 1<<8|1))
	return c.result()
}

func ptrace(args []string) (broke, saw string) {
	var c collect
	pid, _ := strconv.Atoi(args[0])
	runtime.LockOSThread()
	c.add("attach", syscall.PtraceAttach(pid))
	c.add("kill", syscall.Kill(pid, 0))
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	c.add("maps", err)
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/root", pid))
	c.add("root", err)
	var word [8]byte
	local := syscall.Iovec{Base: &word[0], Len: 8}
	remote := struct{ base, size uintptr }{uintptr(0x1000), 8}
	_, _, no := syscall.Syscall6(sysProcessVMReadv, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if no == syscall.EFAULT { // it was let in, and there is nothing
		no = 0
	}
	c.add("process_vm_readv", errOf(no))
	return c.result()
}

func errOf(no syscall.Errno) error {
	if no == 0 {
		return nil
	}
	return no
}

func raw([]string) (broke, saw string) {
	var c collect
	for name, s := range map[string][3]int{
		"icmp":    {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP},
		"raw tcp": {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP},
		"packet":  {syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300},
	} {
		fd, err := syscall.Socket(s[0], s[1], s[2])
		if err == nil {
			_ = syscall.Close(fd)
		}
		c.add(name, err)
	}
	return c.result()
}

// send cannot tell who hears it.
func send(args []string) (broke, saw string) {
	c, err := net.DialTimeout(args[0], args[1], 2*time.Second)
	if err != nil {
		return "", err.Error()
	}
	defer func() { _ = c.Close() }()
	for range 3 {
		if _, err := c.Write([]byte("broken\n")); err != nil {
			return "", err.Error()
		}
	}
	if args[0] == "tcp" {
		return "connected", ""
	}
	return "", "sent, to whom it may concern"
}

func abstract(args []string) (broke, saw string) {
	c, err := net.DialTimeout("unix", "@"+args[0], 2*time.Second)
	if err != nil {
		return "", err.Error()
	}
	_ = c.Close()
	return "connected", ""
}

func euid([]string) (broke, saw string) {
	if os.Geteuid() == 0 {
		return "it is root", ""
	}
	return "", fmt.Sprint("uid ", os.Geteuid())
}

func setuid(args []string) (broke, saw string) {
	out, err := exec.Command(args[0], "euid").CombinedOutput()
	if bytes.Contains(out, []byte("BROKE")) {
		return string(bytes.TrimSpace(out)), ""
	}
	if err != nil {
		return "", err.Error()
	}
	var c collect
	c.add("setuid", syscall.Setuid(0))
	c.add("setgid", syscall.Setgid(0))
	c.add("setgroups", syscall.Setgroups([]int{0}))
	broke, saw = c.result()
	return broke, saw + ", " + strings.TrimSpace(string(out))
}

func read(args []string) (broke, saw string) {
	var c collect
	for _, path := range args {
		_, err := os.ReadFile(path)
		c.add(path, err)
	}
	return c.result()
}

func environ(args []string) (broke, saw string) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return "", err.Error()
	}
	seen := 0
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil {
			seen++
		}
		if bytes.Contains(text, []byte(args[0])) && path != fmt.Sprintf("/proc/%d/environ", os.Getpid()) {
			return path, ""
		}
	}
	return "", fmt.Sprintf("%d of %d can be read", seen, len(all))
}

func hang([]string) (broke, saw string) {
	<-time.After(2 * time.Minute) // whatever the test forgets
	return "", ""
}

func forks(args []string) (broke, saw string) {
	most, _ := strconv.Atoi(args[0])
	var running []*exec.Cmd
	defer func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	for len(running) <= most {
		cmd := exec.Command("/proc/self/exe", "hang")
		if err := cmd.Start(); err != nil {
			return "", fmt.Sprintf("%d, then %v", len(running), err)
		}
		running = append(running, cmd)
	}
	return fmt.Sprintf("%d processes", len(running)), ""
}

func memory(args []string) (broke, saw string) {
	most, _ := strconv.Atoi(args[0])
	var all [][]byte
	for size := 0; size < most; size += 1 << 20 {
		chunk := make([]byte, 1<<20)
		for i := 0; i < len(chunk); i += 4096 {
			chunk[i] = 1
		}
		all = append(all, chunk)
	}
	return fmt.Sprintf("%d MiB", len(all)), ""
}

func cpu(args []string) (broke, saw string) {
	most, _ := strconv.ParseFloat(args[0], 64)
	runtime.GOMAXPROCS(runtime.NumCPU())
	var before, used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) // other attacks took some
	began := time.Now()
	end := began.Add(1500 * time.Millisecond)
	spin := func(done chan<- struct{}) {
		for time.Now().Before(end) {
		}
		close(done)
	}
	for range runtime.NumCPU() {
		go spin(make(chan struct{}, 1))
	}
	done := make(chan struct{})
	go spin(done)
	<-done
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	took := used.Utime.Nano() + used.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	share := time.Duration(took).Seconds() / time.Since(began).Seconds()
	text := fmt.Sprintf("%.2f processors", share)
	if share > most {
		return text, ""
	}
	return "", text
}

func keys([]string) (broke, saw string) {
	var c collect
	kind, name, payload := []byte("user\x00"), []byte("broken\x00"), []byte("x")
	const session, user = -3, -4
	for what, ring := range map[string]int{"session": session, "user": user} {
		id, _, no := syscall.Syscall6(syscall.SYS_ADD_KEY, uintptr(unsafe.Pointer(&kind[0])), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&payload[0])), 1, uintptr(ring), 0)
		c.add("add_key to "+what, errOf(no))
		if no == 0 {
			const unlink = 9
			_, _, _ = syscall.Syscall(syscall.SYS_KEYCTL, unlink, id, uintptr(ring))
		}
	}
	_, _, no := syscall.Syscall6(syscall.SYS_KEYCTL, 0, ^uintptr(2), 0, 0, 0, 0)
	c.add("keyctl", errOf(no))
	return c.result()
}

// huge asks for a file of huge pages, which is there without a page set aside. To
// map one would fail for that too.
func huge([]string) (broke, saw string) {
	var c collect
	const hugePages = 4
	name := []byte("broken\x00")
	_, _, no := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), hugePages, 0)
	c.add("memfd_create", errOf(no))
	_, err := syscall.Mmap(-1, 0, 2<<20, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE|syscall.MAP_HUGETLB)
	c.add("mmap", err)
	return c.result()
}

// tag sets the soft RLIMIT_LOCKS in every way that there is.
func tag([]string) (broke, saw string) {
	const limitLocks = 10
	var c collect
	limit := [2]uint64{1 << 40, ^uint64(0)}
	_, _, no := syscall.RawSyscall(syscall.SYS_SETRLIMIT, limitLocks, uintptr(unsafe.Pointer(&limit)), 0)
	c.add("setrlimit", errOf(no))
	for name, upper := range map[string]uintptr{"prlimit": 0, "prlimit with another upper half": 1 << 40} {
		_, _, no = syscall.RawSyscall6(sysPrlimit, 0, upper|limitLocks, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		c.add(name, errOf(no))
	}
	return c.result()
}

func userns([]string) (broke, saw string) {
	var c collect
	for name, flag := range map[string]uintptr{"user": syscall.CLONE_NEWUSER, "user and mount": syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, "mount": syscall.CLONE_NEWNS, "network": syscall.CLONE_NEWNET, "pid": syscall.CLONE_NEWPID} {
		cmd := exec.Command("/proc/self/exe", "euid")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flag}
		c.add("namespace "+name, cmd.Run())
	}
	for name, flag := range map[string]uintptr{"user": syscall.CLONE_NEWUSER, "uts": syscall.CLONE_NEWUTS} {
		// Go makes them by clone3, and there are older ways.
		pid, _, no := syscall.RawSyscall6(syscall.SYS_CLONE, flag|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if no == 0 && pid == 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
		}
		c.add("clone "+name, errOf(no))
		_, _, no = syscall.RawSyscall(syscall.SYS_UNSHARE, flag, 0, 0)
		c.add("unshare "+name, errOf(no))
	}
	return c.result()
}

func fds([]string) (broke, saw string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err.Error()
	}
	var open []string
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		to, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if fd <= 2 || errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(to, "anon_inode:") {
			continue // the three streams, the one that read the folder, the runtime's
		}
		open = append(open, entry.Name()+" "+to)
	}
	// Go's runtime reads how many processors it has.
	open = slices.DeleteFunc(open, func(s string) bool { return strings.Contains(s, "/cpu.cfs_") || strings.HasSuffix(s, "/cpu.max") })
	return strings.Join(open, ", "), "three"
}

func daemon(args []string) (broke, saw string) {
	if len(args) == 1 { // the first of two forks
		cmd := exec.Command("/proc/self/exe", "daemon", args[0], "again")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Env = []string{}
		if err := cmd.Run(); err != nil {
			return "", err.Error()
		}
		fmt.Println("left", args[0])
		return hang(nil)
	}
	cmd := exec.Command("/proc/self/exe", "hang", args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		return "", err.Error()
	}
	return "", "started"
}
