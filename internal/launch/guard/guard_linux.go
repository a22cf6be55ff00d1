package guard

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedFile returns memory that another process can map.
func sharedFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("orla-groups", unix.MFD_CLOEXEC)
	if err != nil {
		return namelessFile() // a seccomp filter forbids it
	}
	return os.NewFile(uintptr(fd), "orla-groups"), nil
}

// guardProcAttr gives the guard its own session: Ctrl-C and a signal to Orla's group must not reach
// it, since it has to clean up. A guard that was stopped continues when Orla ends.
func guardProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// sessionVariable has the session of the guard's Orla.
const sessionVariable = "ORLA_SESSION"

func guardEnviron() []string {
	own, _ := unix.Getsid(0) // it cannot fail for this process
	return []string{sessionVariable + "=" + strconv.Itoa(own)}
}

// Program returns a path by which this process can execute its own program. It works even after the
// file was replaced or removed: it refers to the running program, not to a name.
func Program() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// nameThisProcess sets the name that ps and pgrep show. It is not "orla", so that `kill -HUP $(pgrep
// orla)` finds only Orla itself.
func nameThisProcess(name string) {
	// prctl would name the current thread instead of the process.
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // cosmetic
}
