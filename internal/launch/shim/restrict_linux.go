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

// lower sets the limits of each process, of which none is raised, and drops
// every capability from the set that bounds all others.
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
		case syscall.EINVAL: // there are no more
			return failure{}
		default:
			return failure{"drop the bounding set of capabilities", errno}
		}
	}
	return failure{}
}

// become makes the process one of the user that tools are, with no capability
// in any set. The calls of package syscall change all threads. Root's groups it
// has left before there were any (package sandbox).
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
		// As root the others have lost theirs with the user. In a user namespace
		// this is for them; a program that is linked to C cannot do it, and has
		// threads that could at most do to the namespace what they never do.
		_, _, _ = syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	}
	return failure{}
}

// ownStreams gives the user its streams: else it may use them, and not open
// /dev/stderr.
func ownStreams(id uint64) failure {
	for fd := range 3 {
		var info syscall.Stat_t
		if f := try("streams", syscall.Fstat(fd, &info)); f.is() {
			return f
		}
		if info.Mode&syscall.S_IFMT != syscall.S_IFIFO {
			continue // it is not Orla's own
		}
		if f := try("streams", syscall.Fchown(fd, int(id), int(id))); f.is() {
			return f
		}
	}
	return failure{}
}

func capabilityHeader() [2]uint32 { return [2]uint32{capabilityVersion3, 0} }

// restrict gives up for good what can be given up, the filter of system calls
// last, since it forbids what the steps before it do.
func restrict(p Plan) failure {
	for _, step := range [...]struct {
		name        string
		option, arg uintptr
	}{
		{"no new privileges", prSetNoNewPrivs, 1},
		{"hide from the tool", prSetDumpable, 0}, // the tool's user is this process's too
		{"die with Orla", prSetPdeathsig, uintptr(syscall.SIGKILL)},
	} {
		if errno := prctl(step.option, step.arg); errno != 0 {
			return failure{step.name, errno}
		}
	}
	if orphaned() { // the change of user undid the signal, and Orla may have gone meanwhile
		return failure{"die with Orla", syscall.EPIPE}
	}
	if f := landlock(p.Landlock); f.is() {
		return f
	}
	return filter(p.Filter)
}

// filter has the kernel refuse system calls to all threads. Where a filter of
// somebody else's, such as systemd's, refuses the call that does so for all,
// there is an older one for the thread from which the tool comes.
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
		errno = syscall.ESRCH // one did not follow
	}
	if errno != 0 {
		return failure{"the filter of system calls", errno}
	}
	return failure{}
}

// orphaned reports whether nobody holds the other end of the channel any more.
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
		fd, err := syscall.Open(r.Path, oPath|syscall.O_CLOEXEC, 0)
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
	_ = syscall.Close(int(ruleset)) // the tool would not get it anyway
	return failure{}
}

// verify asks the kernel whether all that is so.
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
