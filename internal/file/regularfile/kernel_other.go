//go:build !linux

package regularfile

import "os"

// isKernelMade reports whether the kernel makes a file while it is read.
func isKernelMade(*os.File) bool { return false }
