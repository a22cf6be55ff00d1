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

var ofProcesses = []attempt{
	{what: "opens a raw socket", try: func(target) string { return rawSocket() }},
	{what: "signals Orla's process", try: func(t target) string { return has(syscall.Kill(t.Orla, 0) == nil) }},
	{what: "traces Orla's process", try: func(t target) string { return traces(t.Orla) }},
	{what: "mounts a file system", try: func(target) string { return mounts() }},
	{what: "makes a user namespace", try: func(target) string { return newUser() }},
	{what: "becomes root by a setuid program", try: func(target) string { return setuid() }},
	{what: "has 200 processes at once", try: func(target) string { return processes(200) }, last: true},
	{what: "has 256 MiB of memory", try: func(target) string { return takes(256 << 20) }, last: true},
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
	if err != nil {
		return no
	}
	_ = syscall.Close(fd)
	return yes
}

// traces looks whether a process may be traced, without stopping it. The kernel
// lets go of it when this process ends.
func traces(pid int) string {
	const seize = 0x4206
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, seize, uintptr(pid), 0, 0, 0, 0)
	return has(errno == 0)
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

func newUser() string {
	cmd := exec.Command("/proc/self/exe", "nothing")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return has(cmd.Run() == nil)
}

// setuid runs a copy of this program that is root's and has the setuid bit.
func setuid() string {
	id, err := exec.Command(filepath.Join(beside(), "setuid"), "id").Output()
	return has(err == nil && string(id) == "0")
}

// runsOwn runs a copy of this program that it made itself.
func runsOwn() string {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return no
	}
	path := fmt.Sprint("/tmp/reach-own-", os.Getpid())
	if err := os.WriteFile(path, self, 0o700); err != nil {
		return no
	}
	defer os.Remove(path)
	return has(exec.Command(path, "nothing").Run() == nil)
}

// processes starts so many children, which wait, and says whether all came up.
func processes(n int) string {
	var all []*exec.Cmd
	for range n {
		cmd := exec.Command("/proc/self/exe", "wait")
		if err := cmd.Start(); err != nil {
			break
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return has(len(all) == n)
}

// child does what a child is for, and reports whether this is one.
func child(what string) bool {
	switch what {
	case "nothing":
	case "wait":
		time.Sleep(time.Minute)
	case "id":
		fmt.Print(os.Geteuid())
	default:
		return false
	}
	return true
}
