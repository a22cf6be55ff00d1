package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

const podImage = "localhost/podcapsule:1"

// podCapsule describes a capsule in a Pod.
func podCapsule(t *testing.T, tools, kind string) {
	t.Helper()
	testkit.WriteTool(t, filepath.Join(tools, "inpod"), "tool.yaml", "name: inpod\nversion: 1.0.0\ndescription: a capsule in a Pod\nentrypoint: /program\n"+
		"runtime:\n  mode: capsule\n  isolation_mode: kubernetes\n  image: "+podImage+"\n  env: {KIND: "+kind+"}\n  stop_grace_ms: 3000\n")
}

// firstText is the text of an answer; "" if there is none.
func firstText(a *answer) string {
	if a == nil || a.Result == nil || len(a.Result.Content) == 0 {
		return ""
	}
	return a.Result.Content[0].Text
}

// inTools returns a kubeconfig with the rights of deploy/kubernetes in the namespace tools, and no more.
func inTools(t *testing.T, cluster *kubetest.Cluster) string {
	t.Helper()
	cluster.Kubectl("", "create", "namespace", "tools")
	cluster.Kubectl("", "apply", "-n", "tools", "-f", filepath.Join("..", "..", "..", "deploy", "kubernetes"))
	admin, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	begin, _, _ := strings.Cut(string(admin), "users:")
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "kubeconfig", begin+fmt.Sprintf("users: [{name: u, user: {token: %q}}]\n", strings.TrimSpace(cluster.Kubectl("", "create", "token", "-n", "tools", "orla"))))
	return filepath.Join(dir, "kubeconfig")
}

// SPEC P3, SPEC-TOOLS 7.4: capsules and MCP servers over stdio are Pods of a real cluster, with their states, their
// log, reloads and restarts, and nothing is left of them, also of an Orla that was killed.
func TestP3WholeProgram(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartNode(t)
	cluster.Image(podImage, map[string][]byte{"program": kubetest.Build(t, "./testdata/podcapsule")}, map[string]any{"Entrypoint": []string{"/program"}})
	kubeconfig := inTools(t, cluster)
	tools := t.TempDir()
	podCapsule(t, tools, "first")
	testkit.WriteTool(t, tools, "server.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: podserver}\n"+
		"spec: {transport: stdio, command: /program, args: [mcp], env: [{name: KIND, value: server}], default_tool_runtime: {isolation_mode: kubernetes, image: "+podImage+"}}\n")
	start := func() *running {
		o := startOrla(t, t.TempDir(), "--tools-dir", tools, "--port", "0", "--tool-k8s-enabled=true", "--tool-k8s-namespace", "tools", "--tool-k8s-kubeconfig", kubeconfig)
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
		return o
	}
	o := start()
	log := o.follow()
	started := log.next("started", func(l map[string]any) bool { return l["tool"] == "inpod" })
	if place := fmt.Sprint(started["place"]); !strings.HasPrefix(place, "Pod orla-inpod-") || !strings.HasSuffix(place, " on node orla-node") {
		t.Errorf("it is at %q", place)
	}
	o.waitLog("state", is("inpod", "READY"))
	if got := o.mustCall("inpod"); !strings.HasPrefix(got, "uid 65532 on orla-inpod-") || !strings.HasSuffix(got, " as first") {
		t.Errorf("the capsule says %q", got)
	}
	o.waitListed("podserver--where")
	if got := o.mustCall("podserver--where"); !strings.HasPrefix(got, "uid 65532 on orla-podserver-") {
		t.Errorf("the server says %q", got)
	}
	o.waitLog("stderr", func(l map[string]any) bool { return l["tool"] == "inpod" && l["text"] == "podcapsule begins" })

	// A reload: another process, in order.
	podCapsule(t, tools, "second")
	testkit.Eventually(t, "the capsule is reloaded", func() bool {
		a, err := o.call("inpod", "{}")
		return err == nil && strings.HasSuffix(firstText(a), " as second")
	})
	// A crash, and a Pod that somebody deletes: the reason, and another process.
	if a, err := o.call("inpod", `{"do":"crash"}`); err != nil || firstText(a) == "" {
		t.Logf("the call of a capsule that crashes: %v", err)
	}
	log.next("state", is("inpod", "CRASHED", "exited with code 3"))
	log.next("state", is("inpod", "READY"))
	cluster.Kubectl("", "delete", "pods", "-n", "tools", "-l", "orla.dev/tool=inpod")
	log.next("state", is("inpod", "CRASHED", "the Pod was deleted while it ran, and not by Orla"))
	log.next("state", is("inpod", "READY"))

	// Another Orla of this folder, after one that was killed.
	o.signal(syscall.SIGKILL)
	o.wait()
	o = start()
	o.waitLog("state", is("inpod", "READY"))
	if got := o.mustCall("inpod"); !strings.HasSuffix(got, " as second") {
		t.Errorf("after a kill, the capsule says %q", got)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for end := time.Now().Add(time.Minute); ; {
		left := cluster.Kubectl("", "get", "pods,secrets", "-n", "tools")
		if strings.Contains(left, "No resources found") {
			break
		}
		if time.Now().After(end) {
			t.Errorf("left: %s", left)
			break
		}
		<-time.After(200 * time.Millisecond)
	}
}
