package deps

import "syscall"

// mountSmall makes a folder a file system of 1 MB.
func mountSmall(dir string) error { return syscall.Mount("orla", dir, "tmpfs", 0, "size=1m") }
