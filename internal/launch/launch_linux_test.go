package launch_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuse refuses system calls with EPERM, as filters of containers do, and runs
// the test binary again with args.
func refuse(numbers string, args []string) {
	runtime.LockOSThread()
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{{Code: load}} // the number is the first field
	for field := range strings.SplitSeq(numbers, ",") {
		number, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			panic(err)
		}
		filter = append(filter,
			unix.SockFilter{Code: equal, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		fmt.Println("no filter:", err)
		os.Exit(1)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	panic(syscall.Exec(self, append([]string{self}, args...), os.Environ()))
}

// without is the arguments that run the test binary without system calls.
func without(numbers ...int) []string {
	fields := make([]string, 0, len(numbers))
	for _, n := range numbers {
		fields = append(fields, strconv.Itoa(n))
	}
	return []string{asFiltered, strings.Join(fields, ",")}
}

// Before Linux 5.4, and behind some containers' filters, there are no pidfds.
// A process lives as long as it likes there, and Stop ends its whole tree.
func TestWithoutPidfds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	noPidfds := without(unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL)
	const script = `setsid sh -c 'trap "" TERM; sleep 0.2; echo $$; while :; do sleep 1; done' & wait`
	out, err := exec.Command(self, append(noPidfds, asStopper, script)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	stray, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("the script's line: %q; it was ended before it could print one", out)
	}
	eventually(t, 5*time.Second, "the stray is gone", func() bool { return !alive(stray) })
	killAStandIn(t, markedTree+unmarkedChild, noPidfds...)
}

// Where no memory can be shared in the usual way, a file does, and where there
// is no place for one either, the marks in the environment have to do.
func TestWithoutSharedMemory(t *testing.T) {
	noMemfd := without(unix.SYS_MEMFD_CREATE)
	t.Run("a file", func(t *testing.T) { killAStandIn(t, markedTree+unmarkedChild, noMemfd...) })
	t.Run("nothing", func(t *testing.T) {
		t.Setenv("TMPDIR", "/no/such/folder")
		killAStandIn(t, markedTree, noMemfd...)
	})
}
