package container

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// probed are the files that show which restrictions a container has. The files of only one cgroup
// version exist.
var probed = [...]string{
	"/proc/self/status",
	"/proc/self/mountinfo",
	"/proc/net/dev",
	"/proc/meminfo",
	"/sys/fs/cgroup/memory.max",
	"/sys/fs/cgroup/memory.swap.max",
	"/sys/fs/cgroup/cpu.max",
	"/sys/fs/cgroup/pids.max",
	"/sys/fs/cgroup/memory/memory.limit_in_bytes",
	"/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
	"/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
	"/sys/fs/cgroup/cpu/cpu.cfs_period_us",
	"/sys/fs/cgroup/pids/pids.max",
}

// commandPart is the heading of what Probe writes after the files: why the command cannot be run, or
// nothing.
const commandPart = "command"

// probeBytes is how much Probe writes of one file.
const probeBytes = 64 << 10

// Probe is the main function of a prober, which runs inside a container. It writes the files of
// probed to w, as head does, and whether the command in args can be run.
func Probe(args []string, w io.Writer) int {
	for _, path := range probed {
		f, err := os.Open(path)
		if err != nil {
			continue // it belongs to the other cgroup version
		}
		text, err := io.ReadAll(io.LimitReader(f, probeBytes))
		_ = f.Close() // only read
		if err == nil {
			fmt.Fprintf(w, "==> %s <==\n%s\n", path, text)
		}
	}
	if len(args) == 1 {
		fmt.Fprintf(w, "==> %s <==\n%s\n", commandPart, unrunnable(args[0]))
	}
	return 0
}

// unrunnable returns why a command cannot be run here; "" if it can.
func unrunnable(command string) string {
	path, err := exec.LookPath(command)
	switch {
	case err != nil && strings.ContainsRune(command, '/'):
		if _, statErr := os.Stat(command); statErr != nil {
			return "there is no such file"
		}
		return "it cannot be executed by the user that it would run as"
	case err != nil:
		return "it is not in PATH, which is " + os.Getenv("PATH")
	}
	interpreter, err := interpreterOf(path)
	if err != nil || interpreter == "" {
		return "" // it is executable, and need not be readable
	}
	if _, err := os.Stat(interpreter); err != nil {
		return "it needs " + interpreter + ", which is not there"
	}
	return ""
}

// interpreterOf returns the interpreter of a script, or the dynamic linker of a program.
func interpreterOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if n == 0 {
		return "", err
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if fields := strings.Fields(string(line)); len(fields) > 0 {
			return fields[0], nil
		}
		return "", nil
	}
	return linkerOf(f)
}

// linkerOf returns the dynamic linker of a program; "" if it needs none.
func linkerOf(r io.ReaderAt) (string, error) {
	program, err := elf.NewFile(r)
	if err != nil {
		return "", err
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}
