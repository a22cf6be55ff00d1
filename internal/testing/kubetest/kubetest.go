// Package kubetest starts a real Kubernetes on loopback for a test (testdata/kube).
package kubetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
)

// Cluster is a Kubernetes that ends with its test.
type Cluster struct {
	Dir        string // has its certificates, logs and process ids
	Kubeconfig string // a file, of an administrator
	t          testing.TB
	program    string
	port       int // the first of its sixteen ports
}

// Program returns the path of the program that testdata/kube/build has built.
func Program(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "orla-test", "hyperkube-1.34.4")
	if _, err := os.Stat(path); err != nil {
		Missing(t, "there is no %s; testdata/kube/build builds it", path)
	}
	return path
}

// Missing skips the test with a reason, or fails it with ORLA_TEST_KUBE=require.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("ORLA_TEST_KUBE") == "require" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

// Start starts an API server with etcd and controllers, on ports of its own. Tests with clusters may run at the same time;
// those that are too many wait.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return start(t)
}

// StartNode starts what Start does, and a scheduler and a kubelet: it has one node.
func StartNode(t testing.TB) *Cluster {
	t.Helper()
	needs.Root(t, "start a kubelet")
	needs.Programs(t, "containerd", "runc", "gcc")
	return start(t, "node")
}

// room bounds how many clusters a test program has at a time: one takes 500 MB.
var room = make(chan struct{}, 4)

// start starts a cluster with arguments for the script's "up".
func start(t testing.TB, with ...string) *Cluster {
	t.Helper()
	needs.Time(t, "starts a cluster")
	program := Program(t)
	needs.Root(t, "start a cluster")
	needs.Programs(t, "openssl", "curl", "kubectl")
	room <- struct{}{}
	t.Cleanup(func() { <-room })
	// Sockets below it have short paths, and what is mounted there is not the test's.
	dir, err := os.MkdirTemp("", "orla-kube-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, Kubeconfig: filepath.Join(dir, "admin.conf"), t: t, program: program, port: holdPorts(t)}
	t.Cleanup(func() {
		c.script("down", dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if !c.script(append([]string{"up", dir}, with...)...) {
		t.FailNow()
	}
	return c
}

// script runs testdata/kube/cluster.
func (c *Cluster) script(args ...string) bool {
	c.t.Helper()
	script := filepath.Join(needs.Module(c.t), "testdata", "kube", "cluster")
	run := exec.Command(script, args...) //nolint:noctx // it has its own bounds, and runs after the test's context too
	run.Env = append(os.Environ(), "HYPERKUBE="+c.program, "KUBE_PORT="+strconv.Itoa(c.port))
	if out, err := run.CombinedOutput(); err != nil {
		c.t.Errorf("%s %v: %v\n%s", script, args, err, out)
		return false
	}
	return true
}

// Kubectl runs kubectl as an administrator, with stdin, and returns what it printed. The test fails if it does.
func (c *Cluster) Kubectl(stdin string, args ...string) string {
	c.t.Helper()
	out, err := c.Try(stdin, args...)
	if err != nil {
		c.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// Try is like Kubectl, but returns the error.
func (c *Cluster) Try(stdin string, args ...string) (string, error) {
	run := exec.CommandContext(c.t.Context(), "kubectl", append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	run.Stdin = bytes.NewReader([]byte(stdin))
	out, err := run.CombinedOutput()
	return string(out), err
}

// over reports whether a process that was killed has none of its threads any more; its parent may not have noticed yet.
func over(pid int) bool {
	of := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(of, "stat"))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	threads, err := os.ReadDir(filepath.Join(of, "task"))
	return err != nil || strings.HasPrefix(rest, "Z") && len(threads) <= 1
}

// Kill kills one of the cluster's processes, waits until it has ended, and returns what starts it again.
func (c *Cluster) Kill(name string) (restart func()) {
	c.t.Helper()
	file := filepath.Join(c.Dir, name+".pid")
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		c.t.Fatal(err)
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		c.t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	for range 3000 { // its ports are not free before
		if over(pid) {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	return func() {
		c.t.Helper()
		again := exec.Command(args[0], args[1:]...) //nolint:noctx // "down" ends it
		log, err := os.OpenFile(filepath.Join(c.Dir, name+".log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			c.t.Fatal(err)
		}
		defer func() { _ = log.Close() }() // the process has it
		again.Stdout, again.Stderr = log, log
		again.Dir, again.SysProcAttr = c.Dir, &syscall.SysProcAttr{Setsid: true}
		if err := again.Start(); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(again.Process.Pid)), 0o600); err != nil {
			c.t.Fatal(err)
		}
		go func() { _ = again.Wait() }() // "down" waits for its end
	}
}
