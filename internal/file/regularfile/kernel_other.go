//go:build !linux

package regularfile

import "os"

// isKernelMade returns false: these systems have no such file systems.
func isKernelMade(*os.File) bool { return false }
