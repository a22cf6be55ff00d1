package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var more = []attempt{
	{"opens a raw socket", func(target) string { return rawSocket() }},
	{"signals Orla", func(t target) string { return done(syscall.Kill(t.Orla, 0)) }},
	{"traces its parent", func(target) string { return traces(os.Getppid()) }},
	{"mounts a file system", func(target) string { return mounts() }},
	{"makes a user namespace", func(target) string { return done(exec1("newuser")) }},
	{"becomes root by a setuid program", func(target) string { return setuid() }},
	{"has 200 processes at once", func(target) string { return processes(200) }},
	{"has 256 MiB of memory", func(target) string { return done(exec1("memory")) }},
}

func unwrap(given []byte) []byte { return given }
func wrap(lines string) []byte   { return []byte(lines) }
func identity() string           { return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()) }

func capable() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return has(strings.Trim(strings.TrimSpace(set), "0") != "")
		}
	}
	return "unknown"
}

func rawSocket() string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return done(err)
}

func traces(pid int) string {
	if err := syscall.PtraceAttach(pid); err != nil {
		return no
	}
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &status, 0, nil)
	_ = syscall.PtraceDetach(pid)
	return yes
}

func mounts() string {
	dir, err := os.MkdirTemp("", "reach-")
	if err != nil {
		return no
	}
	defer os.Remove(dir)
	if err := syscall.Mount("reach", dir, "tmpfs", 0, ""); err != nil {
		return no
	}
	_ = syscall.Unmount(dir, 0)
	return yes
}

// setuid makes a copy of this program that belongs to root where it can, and
// looks whom it runs as.
func setuid() string {
	for _, program := range []string{"/usr/bin/su", "/bin/su", "/usr/bin/mount", "/bin/mount"} {
		info, err := os.Stat(program)
		if err != nil || info.Mode()&os.ModeSetuid == 0 {
			continue
		}
	}
	return has(os.Geteuid() == 0 || syscall.Setuid(0) == nil)
}

// runsOwn runs a copy of this program that it wrote itself.
func runsOwn() string {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return no
	}
	path := filepath.Join("/tmp", fmt.Sprint("reach-", os.Getpid()))
	if err := os.WriteFile(path, self, 0o700); err != nil {
		return no
	}
	defer os.Remove(path)
	return done(exec.Command(path, "nothing").Run())
}

// exec1 does one thing in a child.
func exec1(what string) error { return exec.Command("/proc/self/exe", what).Run() }

// processes starts so many children that wait, and reports whether all came up.
func processes(n int) string {
	var all []*exec.Cmd
	started := 0
	for range n {
		cmd := exec.Command("/proc/self/exe", "wait")
		in, err := cmd.StdinPipe()
		if err != nil {
			break
		}
		if err := cmd.Start(); err != nil {
			_ = in.Close()
			break
		}
		all = append(all, cmd)
		started++
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return has(started == n)
}

// child does what a child is for, and reports whether this is one.
func child(what string) bool {
	switch what {
	case "nothing":
	case "wait":
		time.Sleep(time.Minute)
	case "newuser":
		if err := syscall.Unshare(syscall.CLONE_NEWUSER); err != nil {
			os.Exit(1)
		}
	case "memory":
		block := make([]byte, 256<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		fmt.Println(len(block))
	default:
		return false
	}
	return true
}
