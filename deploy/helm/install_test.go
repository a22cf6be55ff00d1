package helm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// token is what the client of these tests calls with.
const token = "a-token-of-the-test-0123456789"

// first returns the values of the page, and what it says that the call answers.
func first(t *testing.T) (values, answer string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/KUBERNETES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, began := strings.Cut(string(page), "```yaml\n")
	values, rest, ended := strings.Cut(rest, "```\n")
	_, rest, shown := strings.Cut(rest, `"content":`)
	answer, _, whole := strings.Cut(rest, "]")
	if !began || !ended || !shown || !whole {
		t.Fatal("docs/KUBERNETES.md does not show values, and the answer of a call")
	}
	return values, answer
}

// images gives the node Orla, as deploy/container makes it, and a busybox.
func images(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	needs.Programs(t, "busybox")
	orla := filepath.Join(t.TempDir(), "orla")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", orla, "../../cmd/orla")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	c.Image("docker.io/library/orla:0.1.0", map[string][]byte{"usr/bin/orla": read(orla)}, map[string]any{
		"Entrypoint": []string{"/usr/bin/orla"}, "User": "65532:65532",
		"Env": []string{"PATH=/usr/bin:/bin", "HOME=/var/lib/orla", "STATE_DIRECTORY=/var/lib/orla", "ORLA_TOOLS_DIR=/tools"},
	})
	c.Image("docker.io/library/busybox:1.37", map[string][]byte{"bin/busybox": read(busybox)}, map[string]any{"Env": []string{"PATH=/bin"}})
}

// here are the values for a cluster without DNS and kube-proxy.
func here(t *testing.T, ip, port string) string {
	t.Helper()
	content, err := json.Marshal(map[string]any{
		"hostAliases": []any{map[string]any{"ip": ip, "hostnames": []string{kubetest.NodeName}}},
		"extraEnv": []any{
			map[string]string{"name": "KUBERNETES_SERVICE_HOST", "value": kubetest.NodeName},
			map[string]string{"name": "KUBERNETES_SERVICE_PORT", "value": port},
		},
		"preStopSeconds":       1,
		"shutdownGraceSeconds": 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	return written(t, content)
}

// written returns a file with a content.
func written(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SPEC P1: on a real cluster the chart gives Orla what it needs to answer a call by a Job, and no more.
func TestP1ChartInstalls(t *testing.T) {
	needs.Time(t, "starts a cluster")
	c := kubetest.StartNode(t)
	ip, port := c.ServeAPI()
	images(t, c)
	c.Kubectl("", "create", "namespace", "tools")
	c.Kubectl("", "create", "secret", "generic", "--namespace", "tools", "orla-token", "--from-literal=token="+token)
	values, answer := first(t)
	given := written(t, []byte(values)) + "," + here(t, ip, port)
	onCluster := func(args ...string) {
		t.Helper()
		out, err := helm(t, append(args, "--kubeconfig", c.Kubeconfig, "--namespace", "tools", "--wait", "--timeout", "120s")...)
		if err != nil {
			logs, _ := c.Try("", "describe", "pod", "--namespace", "tools")
			t.Fatalf("helm %v: %v\n%s\n%s", args, err, out, logs)
		}
	}

	t.Run("the API server accepts everything", func(t *testing.T) {
		all, err := render(t, "--values", "testdata/everything.values.yaml", "--set", "serviceMonitor.enabled=false")
		if err != nil {
			t.Fatal(all)
		}
		if out, err := c.Try(all, "apply", "--dry-run=server", "--namespace", "tools", "--filename", "-"); err != nil || strings.Contains(out, "unknown field") {
			t.Errorf("%v\n%s", err, out)
		}
		kept(t, c, all)
	})

	onCluster("install", "orla", chart, "--values", given)
	t.Run("a call is answered by a Job", func(t *testing.T) {
		for _, pod := range pods(t, c, 1) {
			if got := call(t, pod); !strings.Contains(got, answer) {
				t.Errorf("tools/call: %s", got)
			}
		}
	})
	t.Run("it may do that, and no more", func(t *testing.T) { rights(t, c) })
	t.Run("an upgrade replaces the Pods", func(t *testing.T) {
		before := pods(t, c, 1)
		onCluster("upgrade", "orla", chart, "--values", given, "--set", "replicas=2", "--set", "config.timeout=20s")
		for _, pod := range pods(t, c, 2) {
			if pod == before[0] {
				t.Errorf("the Pod %s is still there", pod)
			}
			if got := call(t, pod); !strings.Contains(got, answer) {
				t.Errorf("tools/call: %s", got)
			}
		}
	})
	t.Run("custom resources are served", func(t *testing.T) { resources(t, c, onCluster, values, given) })
	t.Run("replicas know each other", func(t *testing.T) { known(t, c, onCluster, given) })
	t.Run("nothing is left", func(t *testing.T) {
		onCluster("uninstall", "orla")
		if out := c.Kubectl("", "get", "deployments,services,configmaps,serviceaccounts,networkpolicies,roles,rolebindings,poddisruptionbudgets", "--namespace", "tools", "--selector", "app.kubernetes.io/name=orla", "--output", "name"); out != "" && !strings.HasPrefix(out, "No resources") {
			t.Error(out)
		}
	})
}

// kept checks what the API server keeps of the objects that only others act on: a metrics server, the network, evictions.
func kept(t *testing.T, c *kubetest.Cluster, all string) {
	t.Helper()
	var some []string
	for document := range strings.SplitSeq(all, "\n---\n") {
		for _, kind := range []string{"HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget"} {
			if strings.Contains(document, "\nkind: "+kind+"\n") {
				some = append(some, document)
			}
		}
	}
	them := strings.Join(some, "\n---\n")
	c.Kubectl(them, "apply", "--namespace", "tools", "--filename", "-")
	for object, want := range map[string]string{
		"hpa/orla {.spec.scaleTargetRef.kind} {.spec.minReplicas}-{.spec.maxReplicas} {.spec.metrics[0].resource.name} {.spec.behavior.scaleDown.policies[0].value}": "Deployment 2-10 cpu 1",
		"networkpolicy/orla {.spec.policyTypes[*]} {.spec.ingress[0].from[1].ipBlock.cidr} {.spec.ingress[0].ports[0].port} {.spec.egress[1].ports[0].port}":         "Ingress Egress 10.0.0.0/8 http 443",
		"pdb/orla {.spec.maxUnavailable} {.spec.unhealthyPodEvictionPolicy}":                                                                                         "10% AlwaysAllow",
	} {
		name, path, _ := strings.Cut(object, " ")
		if got := c.Kubectl("", "get", name, "--namespace", "tools", "--output", "jsonpath="+path); strings.TrimSpace(got) != want {
			t.Errorf("%s has %q; want %q", name, got, want)
		}
	}
	c.Kubectl(them, "delete", "--namespace", "tools", "--filename", "-")
}

// resources has the tool as a custom resource, and not in the tools folder.
func resources(t *testing.T, c *kubetest.Cluster, onCluster func(...string), values, given string) {
	t.Helper()
	_, document, _ := strings.Cut(values, "hello.yaml: |\n")
	onCluster("upgrade", "orla", chart, "--values", given, "--set", "tools=null", "--set", "kubernetes.resources=true", "--set", "replicas=2")
	c.Kubectl(strings.ReplaceAll(document, "\n    ", "\n")[4:], "apply", "--namespace", "tools", "--filename", "-")
	c.Kubectl("", "wait", "--namespace", "tools", "--for=condition=Ready", "tools.orloj.dev/hello", "--timeout=60s")
	_, answer := first(t)
	for _, pod := range pods(t, c, 2) {
		if got := call(t, pod); !strings.Contains(got, answer) {
			t.Errorf("tools/call: %s", got)
		}
	}
}

// rights checks what the service account of the release may do.
func rights(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	may(t, c, map[string]string{
		"create jobs.batch":              "yes",
		"delete secrets":                 "yes",
		"list pods":                      "yes",
		"get secrets":                    "no",
		"list secrets":                   "no",
		"create pods":                    "yes",
		"get leases":                     "no",
		"list tools.orloj.dev":           "no",
		"update roles":                   "no",
		"get configmaps":                 "no",
		"create jobs.batch -n default":   "no",
		"list nodes --all-namespaces":    "no",
		"create pods --subresource=exec": "no",
	})
}

// may checks answers of the API server.
func may(t *testing.T, c *kubetest.Cluster, what map[string]string) {
	t.Helper()
	for question, want := range what {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:tools:orla", "--namespace=tools"}, strings.Fields(question)...)
		out, _ := c.Try("", args...) // "no" is an error too
		got := strings.Fields(strings.TrimSpace(out))
		if len(got) == 0 || got[len(got)-1] != want && got[0] != want {
			t.Errorf("may %s: %q, want %s", question, out, want)
		}
	}
}

// watchPods tells the addresses of the Pods behind the Service now and whenever they change, until ctx ends.
func watchPods(ctx context.Context, t *testing.T, c *kubetest.Cluster) <-chan []string {
	t.Helper()
	watch := exec.CommandContext(ctx, "kubectl", "--kubeconfig", c.Kubeconfig, "get", "endpoints", "orla", "--namespace", "tools",
		"--output", `jsonpath={.subsets[*].addresses[*].ip}{"\n"}`, "--watch")
	lines, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan []string)
	go func() {
		defer close(found)
		defer func() { _ = watch.Wait() }() // it was killed
		for line := bufio.NewScanner(lines); line.Scan(); {
			select {
			case found <- strings.Fields(line.Text()):
			case <-ctx.Done():
			}
		}
	}()
	return found
}

// pods returns the addresses of the Pods behind the Service, once there are so many.
func pods(t *testing.T, c *kubetest.Cluster, n int) (found []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for found = range watchPods(ctx, t, c) {
		if len(found) == n {
			return found
		}
	}
	t.Fatalf("%d Pods are ready, not %d: %q", len(found), n, found)
	return nil
}

// call calls the tool hello in a Pod.
func call(t *testing.T, pod string) string {
	t.Helper()
	const question = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello","arguments":{"name":"Kubernetes"}}}`
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://%s:8080/mcp", pod), strings.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Authorization", "Bearer "+token)
	ask.Header.Set("Content-Type", "application/json")
	ask.Header.Set("Accept", "application/json, text/event-stream")
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status + " " + string(text)
}
