package container

import (
	"os"
	"strconv"
	"strings"
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
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain spaces
	for {
		_, after, more := strings.Cut(rest, ") ")
		if !more {
			break
		}
		rest = after
	}
	fields := strings.Fields(rest)
	const started = 19
	if len(fields) <= started || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[started]
}
