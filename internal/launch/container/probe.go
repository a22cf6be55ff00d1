package container

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/orla-project/orla/internal/launch"
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
	if missing := launch.MissingInterpreter(path); missing != "" { // the command need not be readable
		return "it needs " + missing + ", which is not there"
	}
	return ""
}
