//go:build amd64 || arm64

package shim

import (
	"syscall"
	"unsafe"
)

// init runs the stage if this process was started as one, and does not return then. It is the only
// init in the module: only an init runs before the other packages are initialised, which takes
// several milliseconds.
func init() { //nolint:gochecknoinits // see above
	if !asked() {
		return
	}
	exit(stage())
}

// asked reports whether the command line is that of a stage. It reads /proc, since package os is not
// initialised yet.
func asked() bool {
	const want = "orla\x00" + Word + "\x00"
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	line := make([]byte, len(want)+1)
	n, err := syscall.Read(fd, line)
	_ = syscall.Close(fd) // only read
	return err == nil && string(line[:n]) == want
}

func exit(code int) {
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}
}

// failure is a step that failed. The zero value is success.
type failure struct {
	step  string
	errno syscall.Errno
}

func (f failure) is() bool { return f.errno != 0 }

// try returns a failure of step if err is not nil.
func try(step string, err error) failure {
	if err == nil {
		return failure{}
	}
	errno, ok := err.(syscall.Errno) //nolint:errorlint // package syscall does not wrap errors
	if !ok || errno == 0 {
		errno = syscall.EINVAL
	}
	return failure{step, errno}
}

// failedCode is the exit code of a stage that could not start the tool. Orla uses the Report
// instead.
const failedCode = 125

// stage is the main function of the first process. It runs on the process's first thread, which init
// runs on. The tool inherits the restrictions of that thread; the other threads of the runtime do
// not affect it.
func stage() int {
	if f := ownNothing(); f.is() {
		return report(Failed, f)
	}
	plan, ok := receive()
	if !ok {
		return failedCode // Orla is gone, or has not started this process
	}
	for _, step := range [...]func(Plan) failure{enterRoot, lower, become, restrict, verify} {
		if f := step(plan); f.is() {
			return report(Failed, f)
		}
	}
	if plan.Path == "" {
		return announce()
	}
	if f := try(plan.Dir, syscall.Chdir(plan.Dir)); f.is() {
		return report(Unrun, f)
	}
	ignoreSignals()
	tool, err := syscall.ForkExec(plan.Path, plan.Argv, &syscall.ProcAttr{
		Env:   append(mark(), plan.Env...), // the mark first: what looks for it reads no further than it must
		Files: []uintptr{0, 1, 2},
	})
	if f := try(plan.Path, err); f.is() {
		return report(Unrun, f)
	}
	announce()
	return outlive(tool)
}

// ownNothing closes every descriptor except the streams and the channel, and marks the channel as
// close-on-exec.
func ownNothing() failure {
	const all = ^uintptr(0) >> 33
	if _, _, errno := syscall.RawSyscall(sysCloseRange, Channel+1, all, 0); errno != 0 {
		return failure{"close what was inherited", errno}
	}
	name := [16]byte{'t', 'o', 'o', 'l', '-', 's', 'a', 'n', 'd', 'b', 'o', 'x'} // for ps; pgrep orla must find only Orla
	_ = prctl(prSetName, uintptr(unsafe.Pointer(&name)))                         // cosmetic
	_, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, Channel, syscall.F_SETFD, syscall.FD_CLOEXEC)
	if errno != 0 {
		return failure{"keep the channel", errno}
	}
	return failure{}
}

// receive waits for the plan. Orla sends it once the process is in its cgroup.
func receive() (Plan, bool) {
	const most = 64 << 20
	var head [4]byte
	if !fill(head[:]) || size(head) > most || size(head) < 0 {
		return Plan{}, false
	}
	body := make([]byte, size(head))
	if !fill(body) {
		return Plan{}, false
	}
	return decode(body)
}

func fill(b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Read(Channel, b)
		switch {
		case err == syscall.EINTR:
		case err != nil || n <= 0:
			return false
		default:
			b = b[n:]
		}
	}
	return true
}

// say writes to Orla. An error is ignored: if Orla is gone, the death signal ends this process.
func say(b []byte) { _, _ = syscall.Write(Channel, b) }

func report(r Report, f failure) int {
	say(append([]byte{byte(r), byte(f.errno)}, f.step...))
	return failedCode
}

func announce() int {
	say([]byte{byte(Ready)})
	return 0
}

// mark returns the variable by which Orla recognises its processes (package trees). The stage's own
// environment has only that and the settings of the runtime.
func mark() []string {
	var marks []string
	for _, kv := range syscall.Environ() {
		const name = "ORLA_INSTANCE="
		if len(kv) > len(name) && kv[:len(name)] == name {
			marks = append(marks, kv)
		}
	}
	return marks
}

// ignoreSignals makes the stage ignore the signals that the runtime handles. The tool still starts
// with the defaults: the runtime resets its handlers between fork and exec.
//
// Resetting them to the default would not protect the stage. The kernel protects the first process
// of a namespace from signals that come from inside and have the default action, but not while its
// first thread blocks them and another does not, as during a fork. The tool is running by then.
func ignoreSignals() {
	const ignore, size = 1, 8                 // SIG_IGN, and the bytes of a signal set
	const ofThreads = 33                      // the signal that the runtime and libc send to their own threads
	for sig := uintptr(1); sig <= 64; sig++ { // SIGKILL and SIGSTOP cannot be changed
		if sig == ofThreads {
			continue
		}
		var action [4]uint64 // struct sigaction
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), size, 0, 0)
		handled := action[0] > ignore
		action = [4]uint64{}
		if handled && syscall.Signal(sig) != syscall.SIGCHLD { // a process that ignores SIGCHLD gets no wait status
			action[0] = ignore
		}
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, size, 0, 0)
	}
}

// outlive reaps children until the tool ends, and exits as the tool did. The kernel then kills the
// rest, since this is the first process.
func outlive(tool int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && err != syscall.EINTR {
			return failedCode // ECHILD, which cannot happen
		}
		if err != nil || pid != tool {
			continue
		}
		say([]byte{byte(status), byte(status >> 8), byte(status >> 16), byte(status >> 24)})
		if status.Signaled() {
			return 128 + int(status.Signal())
		}
		return status.ExitStatus()
	}
}
