package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kept is the last line of a run in a kernel of its own that found nothing: such
// a kernel has no exit code.
const kept = "chaos: all promises were kept"

// runInKernel runs all in a User Mode Linux, whose clock may be set. The
// machine's own files are there to be read; what is written stays in memory.
func runInKernel(ctx context.Context, self string, o options) error {
	kernel, err := exec.LookPath("linux.uml")
	if err != nil {
		return fmt.Errorf("a kernel of its own: %w; install user-mode-linux", err)
	}
	o.dir = "/run/chaos"
	cmd := exec.CommandContext(ctx, kernel, append([]string{
		"mem=1G", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "init=" + self,
		"con=null", "con0=null,fd:1", "--", roleKernel,
	}, o.args()...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the kernel: %w", err)
	}
	if !bytes.Contains(said.Bytes(), []byte(kept)) {
		return errors.New("promises were not kept, or the kernel stopped before its time")
	}
	return nil
}

// beKernel is the first process of that kernel: it runs all as elsewhere, with
// a clock that jumps, and switches the kernel off.
func beKernel(args []string) error {
	// The kernel gives its own arguments to whoever comes first.
	args = slices.DeleteFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	err := prepareKernel()
	if err == nil {
		err = runOutside(append(args, "-jump"))
	}
	if err != nil {
		fmt.Println("chaos:", err)
	} else {
		fmt.Println(kept)
	}
	syscall.Sync()
	return syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func prepareKernel() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"tmpfs", "/run"}} {
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.Setenv("PATH", "/usr/bin:/bin"); err != nil {
		return err
	}
	return loopbackUp()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // it carried nothing
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// jump sets the clock back and forth until ctx ends, as the seed wants it. It
// refuses to where the clock is anybody else's.
func jump(ctx context.Context, seed uint64) error {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !strings.Contains(string(cpu), "User Mode Linux") {
		return errors.New("the clock is set in a kernel of its own alone")
	}
	dice := rand.New(rand.NewPCG(seed, 1<<63))
	jumps := 0
	for {
		wait(ctx, between(dice, 100*time.Millisecond, 3*time.Second))
		select {
		case <-ctx.Done():
			fmt.Printf("the clock has jumped %d times\n", jumps)
			return nil
		default:
		}
		jumps++
		far := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}[dice.IntN(4)]
		at := time.Now().Round(0).Add(between(dice, -far, far))
		tv := syscall.NsecToTimeval(at.UnixNano())
		if err := syscall.Settimeofday(&tv); err != nil {
			return fmt.Errorf("set the clock: %w", err)
		}
	}
}
