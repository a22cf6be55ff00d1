//go:build !linux

package regularfile

import "os"

// openIsKernelMade and isKernelMade return false: these systems have no such file systems.
func openIsKernelMade(*os.File) bool { return false }

func isKernelMade(int) bool { return false }
