package program

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// pythons are the Python drivers of all tests: to load their SDK takes a second, which one process does once, and it becomes
// a driver by a fork.
var pythons struct {
	once   sync.Once
	orders *net.UnixConn // nil as long as no test has asked for one
	cmd    *exec.Cmd
	err    error
}

// endPythons ends the process that becomes drivers.
func endPythons() {
	if pythons.orders != nil {
		_ = pythons.orders.Close() // its end
		_ = pythons.cmd.Wait()
	}
}

// start starts a driver in a folder, with a stderr, and gives its stdout, and what waits for its end: how it ends is not what
// is tested.
func (c *client) start(dir string, stderr *os.File, argv []string) (stdout io.Reader, wait func()) {
	c.t.Helper()
	home := c.t.TempDir()
	if !forks || !strings.HasSuffix(argv[1], ".py") {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+home)
		if stderr != nil {
			cmd.Stderr = stderr
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			c.stdin, err = cmd.StdinPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			c.t.Fatal(err)
		}
		return out, func() { _ = cmd.Wait() }
	}

	if err := forkPythons(argv); err != nil {
		c.t.Fatal(err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // the driver has it
	out, theirs, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = theirs.Close() }() // the driver has it
	if stderr == nil {
		if stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			c.t.Fatal(err)
		}
		defer func() { _ = stderr.Close() }() // the driver has it
	}
	order, err := json.Marshal(map[string]any{"args": argv[2:], "dir": dir, "home": home})
	if err != nil {
		c.t.Fatal(err)
	}
	files := syscall.UnixRights(int(in.Fd()), int(theirs.Fd()), int(stderr.Fd()))
	if _, _, err := pythons.orders.WriteMsgUnix(order, files, nil); err != nil {
		c.t.Fatalf("the process that becomes Python drivers is gone: %v", err)
	}
	c.stdin = stdin
	return out, func() { // the last who has its stdout is the driver
		_, _ = io.Copy(io.Discard, out)
		_ = out.Close()
	}
}
