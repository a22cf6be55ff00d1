package procfs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holeVariable has the test program be a process whose environment is in memory that
// there is not.
const holeVariable = "ORLA_TEST_HOLE"

func TestMain(m *testing.M) {
	if os.Getenv(holeVariable) != "" {
		beHole()
	}
	os.Exit(m.Run())
}

// beHole says a line when it has no environment any more, or why it has, and then waits
// until stdin ends.
func beHole() {
	fmt.Println(unmapEnviron())
	_, _ = os.Stdin.Read(make([]byte, 1)) // it only ends
	os.Exit(0)
}

// unmapEnviron has this process say that its environment is a page, and unmaps that.
func unmapEnviron() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	var buf [2048]byte
	fields, err := fieldsOf(os.Getpid(), buf[:])
	if err != nil {
		return err
	}
	number := func(field int) uint64 { // as proc(5) counts
		var n uint64
		_, err = fmt.Sscan(string(fields[field-3]), &n)
		return n
	}
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))
	// struct prctl_mm_map of linux/prctl.h; its end is an auxv of no bytes, and no file.
	layout := [...]uint64{
		number(26), number(27), number(45), number(46), number(47), number(47), number(28), number(48), number(49),
		at, at + uint64(len(page)), 0, 0xffffffff << 32,
	}
	if err != nil {
		return err
	}
	const setMap = 14 // PR_SET_MM_MAP
	if err := unix.Prctl(unix.PR_SET_MM, setMap, uintptr(unsafe.Pointer(&layout)), unsafe.Sizeof(layout), 0); err != nil {
		return err
	}
	return unix.Munmap(page)
}

// SPEC S2: a look does not wait for a process that has nothing where it says that its
// environment is.
func TestAHoleForAnEnvironmentIsNotWaitedFor(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{holeVariable + "=1"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it ends by that
	})
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "<nil>\n" {
		t.Skipf("this kernel lets nobody say where an environment is: %s%v", said, err)
	}
	var environs Environs
	if environ, err := environs.Of(cmd.Process.Pid); err != nil || len(environ) > 0 {
		t.Errorf("its environment is %q, %v", environ, err)
	}
	if len(environs.late) > 0 {
		t.Error("it is asked again")
	}
}

// SPEC S2: one patience is for all processes that a look meets in the middle of an exec.
func TestALookHasOnePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		await(make([]int, 1000), func(int) bool { return false })
		if took := time.Since(begin); took > execPatience {
			t.Errorf("a look waits %s for a thousand processes, want %s", took, execPatience)
		}
	})
}

// What has no environment for good is not waited for.
func TestNoneIsToldFromNotYet(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	late := time.After(time.Minute)
	var environs Environs
	for {
		_, settled, err := environs.read(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if settled {
			return
		}
		select { // not yet: Start returns in the middle of the exec
		case <-time.After(execPause):
		case <-late:
			t.Fatal("a process that was given no environment is taken for one that will have one")
		}
	}
}
