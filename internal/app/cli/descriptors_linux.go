package cli

import "golang.org/x/sys/unix"

// keepDescriptors keeps what Orla's parent left open from reaching tools.
func keepDescriptors() {
	const firstNotStd = 3
	_ = unix.CloseRange(firstNotStd, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11; before it, parents must see to it
}
