//go:build amd64 || arm64

package shim

import (
	"syscall"
	"unsafe"
)

const (
	sysLandlockCreateRuleset = 444
	sysLandlockAddRule       = 445
	sysLandlockRestrictSelf  = 446

	prSetPdeathsig  = 1
	prSetName       = 15
	prSetDumpable   = 4
	prCapbsetDrop   = 24
	prSetNoNewPrivs = 38
	prGetNoNewPrivs = 39
	prGetSeccomp    = 21
	prSetSeccomp    = 22
	prCapAmbient    = 47

	ambientClearAll       = 4
	capabilityVersion3    = 0x20080522
	landlockPathBeneath   = 1
	oPath                 = 0x200000
	seccompSetFilter      = 1
	seccompFilterTsync    = 1
	seccompModeFilter     = 2
	lastCapabilityAtMost  = 63
	pollIn, pollErr, pHup = 0x1, 0x8, 0x10
)

func prctl(option, arg uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0)
	return errno
}

// lower sets the rlimits, none of which is above the current one, and drops every capability from
// the bounding set.
func lower(p Plan) failure {
	for _, l := range p.Limits {
		var have syscall.Rlimit
		if f := try("limits", syscall.Getrlimit(int(l.Resource), &have)); f.is() {
			return f
		}
		most := min(have.Max, l.Most)
		if f := try("limits", syscall.Setrlimit(int(l.Resource), &syscall.Rlimit{Cur: most, Max: most})); f.is() {
			return f
		}
	}
	for capability := range uintptr(lastCapabilityAtMost + 1) {
		switch errno := prctl(prCapbsetDrop, capability); errno {
		case 0:
		case syscall.EINVAL: // no more capabilities
			return failure{}
		default:
			return failure{"drop the bounding set of capabilities", errno}
		}
	}
	return failure{}
}

// become changes the process's user to the tool's, without any capability. The functions of package
// syscall change all threads. Package sandbox has already dropped root's supplementary groups.
func become(p Plan) failure {
	if p.Drop {
		if f := ownStreams(p.ID); f.is() {
			return f
		}
		if f := try("become the user", syscall.Setresuid(int(p.ID), int(p.ID), int(p.ID))); f.is() {
			return f
		}
	}
	if errno := prctl(prCapAmbient, ambientClearAll); errno != 0 {
		return failure{"clear the ambient capabilities", errno}
	}
	header, none := capabilityHeader(), [6]uint32{}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return failure{"clear the capabilities", errno}
	}
	if !p.Drop {
		// As root, changing the user has dropped the other sets on all threads. In a user namespace this
		// call does. It fails in a program that is linked to C; there, other threads keep capabilities
		// that only apply to the namespace, and never use them.
		_, _, _ = syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	}
	return failure{}
}

// ownStreams gives the user ownership of its streams; otherwise it could use them but not open
// /dev/stderr.
func ownStreams(id uint64) failure {
	for fd := range 3 {
		var info syscall.Stat_t
		if f := try("streams", syscall.Fstat(fd, &info)); f.is() {
			return f
		}
		if info.Mode&syscall.S_IFMT != syscall.S_IFIFO {
			continue // it does not belong to Orla
		}
		if f := try("streams", syscall.Fchown(fd, int(id), int(id))); f.is() {
			return f
		}
	}
	return failure{}
}

func capabilityHeader() [2]uint32 { return [2]uint32{capabilityVersion3, 0} }

// restrict drops every right that can be dropped. The filter of system calls is last, since it
// forbids the steps before it.
func restrict(p Plan) failure {
	for _, step := range [...]struct {
		name        string
		option, arg uintptr
	}{
		{"no new privileges", prSetNoNewPrivs, 1},
		{"hide from the tool", prSetDumpable, 0}, // it has the same user as the tool
		{"die with Orla", prSetPdeathsig, uintptr(syscall.SIGKILL)},
	} {
		if errno := prctl(step.option, step.arg); errno != 0 {
			return failure{step.name, errno}
		}
	}
	if orphaned() { // the change of user cleared the death signal, and Orla may have ended before this
		return failure{"die with Orla", syscall.EPIPE}
	}
	if f := landlock(p.Landlock); f.is() {
		return f
	}
	return filter(p.Filter)
}

// filter installs the seccomp filter for all threads. If another filter, such as systemd's, forbids
// the seccomp call, it uses prctl, which filters only the thread that starts the tool.
func filter(text string) failure {
	program := struct { // struct sock_fprog
		count  uint16
		filter *byte
	}{uint16(len(text) / 8), unsafe.StringData(text)}
	thread, _, errno := syscall.RawSyscall(sysSeccomp, seccompSetFilter, seccompFilterTsync, uintptr(unsafe.Pointer(&program)))
	switch {
	case errno == syscall.EPERM || errno == syscall.ENOSYS:
		_, _, errno = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetSeccomp, seccompModeFilter, uintptr(unsafe.Pointer(&program)), 0, 0, 0)
	case errno == 0 && thread != 0:
		errno = syscall.ESRCH // one thread could not be changed
	}
	if errno != 0 {
		return failure{"the filter of system calls", errno}
	}
	return failure{}
}

// orphaned reports whether the other end of the channel is closed.
func orphaned() bool {
	poll := struct {
		fd              int32
		events, revents int16
	}{fd: Channel, events: pollIn}
	var now syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0 && poll.revents&(pHup|pollErr) != 0
}

func landlock(l Landlock) failure {
	if l.Attr == "" {
		return failure{}
	}
	const name = "Landlock"
	ruleset, _, errno := syscall.RawSyscall(sysLandlockCreateRuleset, uintptr(unsafe.Pointer(unsafe.StringData(l.Attr))), uintptr(len(l.Attr)), 0)
	if errno != 0 {
		return failure{name, errno}
	}
	for _, r := range l.Rules {
		fd, err := Open(r.Path)
		if f := try(name+" "+r.Path, err); f.is() {
			return f
		}
		var beneath [12]byte // struct landlock_path_beneath_attr, which is packed
		*(*uint64)(unsafe.Pointer(&beneath[0])) = r.Access
		*(*int32)(unsafe.Pointer(&beneath[8])) = int32(fd)
		_, _, errno := syscall.RawSyscall6(sysLandlockAddRule, ruleset, landlockPathBeneath, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
		_ = syscall.Close(fd) // nothing was written
		if errno != 0 {
			return failure{name + " " + r.Path, errno}
		}
	}
	if _, _, errno := syscall.RawSyscall(sysLandlockRestrictSelf, ruleset, 0, 0); errno != 0 {
		return failure{name, errno}
	}
	_ = syscall.Close(int(ruleset)) // the tool would not inherit it
	return failure{}
}

// verify checks with the kernel that all restrictions are in effect.
func verify(p Plan) failure {
	const name = "what was given up is still there"
	var user, group [3]uint32
	_, _, _ = syscall.RawSyscall(syscall.SYS_GETRESUID, at(&user[0]), at(&user[1]), at(&user[2]))
	_, _, _ = syscall.RawSyscall(syscall.SYS_GETRESGID, at(&group[0]), at(&group[1]), at(&group[2]))
	id := uint32(p.ID)
	if want := [3]uint32{id, id, id}; user != want || group != want {
		return failure{name + ": the user", syscall.EPERM}
	}
	if groups, _, _ := syscall.RawSyscall(syscall.SYS_GETGROUPS, 0, 0, 0); p.Drop && groups != 0 {
		return failure{name + ": groups", syscall.EPERM}
	}
	header, sets := capabilityHeader(), [6]uint32{1}
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	if errno != 0 || sets != [6]uint32{} {
		return failure{name + ": capabilities", syscall.EPERM}
	}
	if set, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0, 0, 0, 0); set != 1 {
		return failure{name + ": new privileges", syscall.EPERM}
	}
	if mode, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetSeccomp, 0, 0, 0, 0, 0); mode != seccompModeFilter {
		return failure{name + ": system calls", syscall.EPERM}
	}
	return failure{}
}

func at(p *uint32) uintptr { return uintptr(unsafe.Pointer(p)) }
