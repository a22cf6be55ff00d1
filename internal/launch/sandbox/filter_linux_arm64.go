package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0 // no other ABI
)

var (
	modesHere     []modeCall
	forbiddenHere []uint32
)
