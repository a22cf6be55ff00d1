package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram gives back the memory of the program's own code and constants, of
// which the start, or a busy time, has touched far more than what follows needs
// (SPEC L4). What is needed again comes back from the system's cache of files, page
// by page. It is an economy, and nothing depends on it.
func forgetProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // there is no /proc
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var mode, rest string
		line = strings.TrimSuffix(line, "\n")
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s", &from, &to, &mode, &rest); n < 4 || !strings.HasSuffix(line, " "+program) {
			continue
		}
		if strings.Contains(mode, "w") {
			continue // variables would be lost
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED) // an economy
	}
}
