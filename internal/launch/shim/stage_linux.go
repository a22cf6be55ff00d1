//go:build amd64 || arm64

package shim

import (
	"syscall"
	"unsafe"
)

// init makes this process a sandbox's stage when it was started as one, and
// does not return then. It is the one init of the tree: there is no other way
// to be before the initialisation of packages, which takes several milliseconds.
func init() { //nolint:gochecknoinits // see above
	if !asked() {
		return
	}
	exit(stage())
}

// asked reports whether the command line is that of a stage. Package os, which
// knows it, is not there yet.
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

// failure is a step that did not work. Its zero value is none.
type failure struct {
	step  string
	errno syscall.Errno
}

func (f failure) is() bool { return f.errno != 0 }

// try returns the failure of a step, if err is one.
func try(step string, err error) failure {
	if err == nil {
		return failure{}
	}
	errno, ok := err.(syscall.Errno) //nolint:errorlint // package syscall wraps nothing
	if !ok || errno == 0 {
		errno = syscall.EINVAL
	}
	return failure{step, errno}
}

// failedCode is what a stage exits with when it could not start the tool. Orla
// goes by the report.
const failedCode = 125

// stage is the whole life of the first process. It runs on the process's first
// thread, to which init is bound: what a thread may, the program that it
// starts may, so the threads of the runtime beside it do not matter to the tool.
func stage() int {
	if f := ownNothing(); f.is() {
		return report(Failed, f)
	}
	plan, ok := receive()
	if !ok {
		return failedCode // Orla is gone, or this was not started by it
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

// ownNothing closes every descriptor but the streams and the channel, which the
// tool does not get.
func ownNothing() failure {
	const all = ^uintptr(0) >> 33
	if _, _, errno := syscall.RawSyscall(sysCloseRange, Channel+1, all, 0); errno != 0 {
		return failure{"close what was inherited", errno}
	}
	name := [16]byte{'t', 'o', 'o', 'l', '-', 's', 'a', 'n', 'd', 'b', 'o', 'x'} // as ps has it; pgrep orla is to find Orla alone
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

// say writes to Orla. Whether Orla still listens is nothing to this process: the
// death signal takes care of that.
func say(b []byte) { _, _ = syscall.Write(Channel, b) }

func report(r Report, f failure) int {
	say(append([]byte{byte(r), byte(f.errno)}, f.step...))
	return failedCode
}

func announce() int {
	say([]byte{byte(Ready)})
	return 0
}

// mark returns the variable by which Orla knows its own (package launch). It is
// all that the stage's own environment has, but for what bounds the runtime.
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

// ignoreSignals has the stage ignore what the runtime handles, and has the tool start with
// the defaults: between fork and exec the runtime undoes its handlers.
//
// The default is not enough for the stage. The kernel keeps the first process of a namespace
// from signals with their default that come from inside, but not while its first thread
// blocks them and another does not, as in a fork. The tool runs already then.
func ignoreSignals() {
	const ignore, size = 1, 8                 // SIG_IGN, and the bytes of a set of signals
	const ofThreads = 33                      // by which the runtime reaches its threads
	for sig := uintptr(1); sig <= 64; sig++ { // SIGKILL and SIGSTOP cannot be changed
		if sig == ofThreads {
			continue
		}
		var action [4]uint64 // struct sigaction
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), size, 0, 0)
		handled := action[0] > ignore
		action = [4]uint64{}
		if handled && syscall.Signal(sig) != syscall.SIGCHLD { // who ignores SIGCHLD is not told of an end
			action[0] = ignore
		}
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, size, 0, 0)
	}
}

// outlive reaps what ends until the tool does, and ends as the tool did. The
// kernel kills what is left, as that was the first process.
func outlive(tool int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && err != syscall.EINTR {
			return failedCode // there is no child: it cannot be
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
