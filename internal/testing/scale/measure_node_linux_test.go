package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/needs"
)

const job = `apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: hello}
spec:
  type: cli
  description: Say hello.
  cli: {image: "busybox:1.37", command: busybox, args: [echo, hello]}
  runtime: {isolation_mode: kubernetes, timeout: 2m}
`

// What a call that is a Job, and a message to the stdin of a Pod, cost the control plane.
func TestMeasurePods(t *testing.T) {
	wanted(t)
	needs.Programs(t, "busybox")
	c := kubetest.StartNode(t)
	busybox, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	c.Image("docker.io/library/busybox:1.37", map[string][]byte{"bin/busybox": busybox}, map[string]any{"Env": []string{"PATH=/bin"}})
	plane := []int{pid(t, c, "kube-apiserver"), pid(t, c, "etcd"), pid(t, c, "kube-controller-manager"), pid(t, c, "kube-scheduler")}
	node := []int{pid(t, c, "kubelet"), pid(t, c, "containerd")}

	dir := t.TempDir()
	orla := filepath.Join(dir, "orla")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", orla, "github.com/orla-project/orla/cmd/orla")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tools := filepath.Join(dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tools, "hello.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func() {
		run := exec.CommandContext(t.Context(), orla, "call", "--tools-dir", tools, "hello")
		run.Dir = dir
		run.Env = append(os.Environ(), "HOME="+dir, "ORLA_TOOL_K8S_ENABLED=true", "ORLA_TOOL_K8S_KUBECONFIG="+c.Kubeconfig)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	call()
	const calls = 8
	idle := perSecond(t, "the control plane, idle", plane)
	idleNode := perSecond(t, "the kubelet and containerd, idle", node)
	for what, of := range map[string]struct {
		pids []int
		idle time.Duration
	}{"the control plane": {plane, idle}, "the kubelet and containerd": {node, idleNode}} {
		began := time.Now()
		one := each(t, "a call as a Job: "+what, calls, of.pids, func() {
			for range calls {
				call()
			}
		})
		t.Logf("%-60s %10.1f µs", "    without what it takes when idle", float64(one-time.Duration(float64(of.idle)*time.Since(began).Seconds()/calls))/1e3)
	}

	c.Kubectl("", "run", "cat", "--image=busybox:1.37", "--restart=Never", "--command", "--", "busybox", "sleep", "600")
	c.Kubectl("", "wait", "--for=condition=Ready", "pod/cat", "--timeout=60s")
	cat := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", c.Kubeconfig, "exec", "-i", "cat", "--", "busybox", "cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	const lines = 4000
	talk := func() {
		for range lines {
			if _, err := fmt.Fprintln(in, question); err != nil {
				t.Fatal(err)
			}
			if _, err := answers.ReadString('\n'); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		}
	}
	talk()
	each(t, "a line to a Pod and one back: the API server", lines, plane[:1], talk)
	each(t, "the same: the kubelet and containerd", lines, node, talk)
	_ = in.Close()
	_ = cat.Wait()
}

// perSecond is what processes take while nothing is asked of them.
func perSecond(t *testing.T, what string, pids []int) time.Duration {
	t.Helper()
	const seconds = 5
	return each(t, what+", a second", seconds, pids, func() {
		select {
		case <-t.Context().Done():
		case <-time.After(seconds * time.Second):
		}
	})
}
