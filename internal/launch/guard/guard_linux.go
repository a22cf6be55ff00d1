package guard

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedFile returns memory that can be handed to another process.
func sharedFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("orla-groups", unix.MFD_CLOEXEC)
	if err != nil {
		return namelessFile() // a filter forbids it
	}
	return os.NewFile(uintptr(fd), "orla-groups"), nil
}

// guardProcAttr gives the guard a session of its own: Ctrl-C and a kill of Orla's
// group must not reach it, or nobody would be left to clean up. A guard that was
// stopped continues when Orla ends.
func guardProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// sessionVariable tells a guard which session its Orla is in.
const sessionVariable = "ORLA_SESSION"

func guardEnviron() []string {
	own, _ := unix.Getsid(0) // it has no error
	return []string{sessionVariable + "=" + strconv.Itoa(own)}
}

// Program returns a path by which this process can execute its own program. It
// works also after the file was replaced or removed: for the kernel it is the
// program that runs, not a name.
func Program() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// nameThisProcess sets the name that ps and pgrep show. It is not "orla", so
// that `kill -HUP $(pgrep orla)` finds the one that is meant.
func nameThisProcess(name string) {
	// A prctl would name the thread that happens to run this.
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // cosmetic
}
