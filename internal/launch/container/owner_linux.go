package container

import (
	"os"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// space identifies the boot and the pid namespace of this process.
func space() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "-" + strings.Trim(namespace, "pid:[]")
}

// startOf returns when a process was started, in ticks since boot; "" if it does not exist or is a
// zombie.
func startOf(pid int) string {
	st, ok := procfs.Read(pid)
	if !ok || st.State == 'Z' || st.State == 'X' {
		return ""
	}
	return strconv.FormatUint(st.Start, 10)
}
