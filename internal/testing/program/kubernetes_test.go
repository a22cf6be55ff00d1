package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// k8s is a cluster that has the definitions of Orla's resources.
type k8s struct {
	*kubetest.Cluster
	t      *testing.T
	client *kubeapi.Client
	config string // a kubeconfig with the rights of docs/KUBERNETES.md alone
}

// sharedCluster is a cluster with the definitions of Orla's resources, which other tests use as well.
func sharedCluster(t *testing.T) *kubetest.Cluster {
	t.Helper()
	return kubetest.Shared(t, func(c *kubetest.Cluster) {
		c.Kubectl("", "apply", "-f", "../../../deploy/helm/orla/crds")
		c.Kubectl("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	})
}

// startCluster returns the shared cluster and a client of it.
func startCluster(t *testing.T) *k8s {
	t.Helper()
	c := &k8s{sharedCluster(t), t, nil, ""}
	config, err := kubeapi.Load(c.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = kubeapi.New(config, "test", func(next http.RoundTripper) http.RoundTripper { return next }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	testkit.Eventually(t, "the API server knows the kinds", func() bool {
		out, err := c.Try("", "explain", "toolpermission.spec")
		return err == nil && strings.Contains(out, "operation_rules")
	})
	return c
}

// tryCreate sends a document to the API server, which checks it and keeps nothing.
func (c *k8s) tryCreate(kind string, document []byte) error {
	plural := map[string]string{"Tool": "tools", "McpServer": "mcpservers", "AgentRole": "agentroles", "AgentPolicy": "agentpolicies", "ToolPermission": "toolpermissions"}[kind]
	return c.client.Do(c.t.Context(), kubeapi.Request{
		Method: http.MethodPost, Of: kubeapi.Resource{Group: "orloj.dev", Version: "v1", Name: plural}, Namespace: "default",
		Query: url.Values{"dryRun": {"All"}, "fieldValidation": {"Strict"}}, Body: json.RawMessage(document),
	}, nil)
}

// ready returns the condition Ready of a resource as STATUS REASON GENERATION.
func (c *k8s) ready(resource string) string {
	out, _ := c.Try("", "-n", "tools", "get", resource, "-o", `jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason} {.observedGeneration}{end}`)
	return out
}

func (c *k8s) awaitReady(resource, want string) {
	c.t.Helper()
	got := ""
	testkit.Eventually(c.t, "the status of "+resource+" is "+want, func() bool {
		got = c.ready(resource)
		return got == want
	})
}

// documentsOf returns the documents of a file by their kinds, as JSON, in the default namespace. Those that only a folder
// may have are left out: Secrets, and names that no object of Kubernetes can have.
func documentsOf(t *testing.T, file string, data []byte) (kinds []string, documents [][]byte) {
	t.Helper()
	name := regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	for _, one := range yamldoc.Documents(data) {
		text := bytes.TrimSuffix(one.Data, []byte("...\n"))
		if _, below, marked := bytes.Cut(text, []byte("---\n")); marked {
			text = below
		}
		doc := yamldoc.Parse(file, text, yamldoc.Options{})
		kind, _ := doc.Text("kind")
		called, _ := doc.Text("metadata.name")
		if version, _ := doc.Text("apiVersion"); doc.Err() != nil || version != "orloj.dev/v1" || kind == "Secret" || !name.MatchString(called) {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal(manifesttest.AsJSON(t, text), &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object["metadata"].(map[string]any)["namespace"] = "default"
		delete(object["metadata"].(map[string]any), "labels") // numbers are texts in a file
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		kinds, documents = append(kinds, kind), append(documents, raw)
	}
	return kinds, documents
}

// SPEC P2: a real API server takes the documents that Orla takes, refuses most of those that it refuses, and
// explains them; and Orla serves what is in it.
func TestP2CustomResources(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	t.Run("explain", func(t *testing.T) {
		for what, want := range map[string]string{
			"tool.spec":                           "What the tool does and when to use it.",
			"mcpserver.spec.transport":            "a command that is kept running",
			"toolpermission.spec.operation_rules": "approval_required",
			"agentpolicy.spec.blocked_tools":      "must not be called",
			"agentrole.spec.permissions":          "tool:NAME:invoke",
			"tool.status.conditions":              "observedGeneration",
			"tool.spec.runtime.retry":             "max_backoff",
			"mcpserver.spec.env":                  "secretRef",
			"tool.spec.cli.resources.memory":      "128MiB",
			"mcpserver.spec.default_tool_runtime": "isolation_mode",
		} {
			if out := c.Kubectl("", "explain", what); !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("explain %s:\n%s", what, out)
			}
		}
	})
	t.Run("good", func(t *testing.T) {
		files, err := filepath.Glob("../../../manifest/resource/testdata/good/*.yaml")
		more, _ := filepath.Glob("../../../examples/resources/tools/*.yaml")
		accepted := 0
		for _, file := range slices.Concat(files, more) {
			kinds, documents := documentsOf(t, file, manifesttest.Read(t, file))
			for i, document := range documents {
				// Truth values are texts in a file; the API wants quotes.
				document = regexp.MustCompile(`([\[,:])(true|false|[0-9]+\.[0-9]+)([,\]}])`).ReplaceAll(document, []byte(`$1"$2"$3`))
				document = regexp.MustCompile(`"(cpus|enable_wasi|stdin_from_input)":"([^"]*)"`).ReplaceAll(document, []byte(`"$1":$2`))
				if err := c.tryCreate(kinds[i], document); err != nil {
					t.Errorf("%s: %v\n%s", file, err, document)
				}
				accepted++
			}
		}
		if err != nil || accepted < 25 {
			t.Errorf("%d documents, %v", accepted, err)
		}
	})
	t.Run("bad", func(t *testing.T) {
		files, err := filepath.Glob("../../../manifest/resource/testdata/bad/*.txtar")
		refused, all := 0, 0
		for _, file := range files {
			for _, one := range txtar.Parse(manifesttest.Read(t, file)).Files {
				if !strings.HasSuffix(one.Name, ".yaml") {
					continue
				}
				kinds, documents := documentsOf(t, file, one.Data)
				for i, document := range documents {
					all++
					if c.tryCreate(kinds[i], document) != nil {
						refused++
					}
				}
			}
		}
		t.Logf("%d of %d refused", refused, all)
		if err != nil || refused < 60 { // the rest is right, or about files and addresses
			t.Errorf("%d of %d refused, %v", refused, all, err)
		}
		for name, document := range map[string]string{
			"no endpoint": `"kind":"Tool","spec":{}`, "foreign key": `"kind":"Tool","spec":{"endpoint":"http://a","wasm":{"module":"a"}}`,
			"unknown key": `"kind":"Tool","spec":{"endpoint":"http://a","endpiont":"x"}`, "no transport": `"kind":"McpServer","spec":{}`,
			"applies to nobody": `"kind":"AgentPolicy","spec":{"blocked_tools":["a"]}`, "permission": `"kind":"AgentRole","spec":{"permissions":["a"]}`,
		} {
			kind := strings.Split(document, `"`)[3]
			if c.tryCreate(kind, []byte(`{"apiVersion":"orloj.dev/v1","metadata":{"name":"a"},`+document+`}`)) == nil {
				t.Errorf("%s: accepted", name)
			}
		}
	})
	c.Kubectl("", "create", "namespace", "tools")
	c.grant()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(service.Close)
	t.Run("serve", func(t *testing.T) { c.t = t; testServesACluster(t, c, service.URL) })
	t.Run("rules", func(t *testing.T) { c.t = t; testRulesOfACluster(t, c) })
	t.Run("many", func(t *testing.T) { c.t = t; testManyTools(t, c, service.URL) })
}

// grant gives a service account the rights that docs/KUBERNETES.md lists.
func (c *k8s) grant() {
	c.t.Helper()
	page, err := os.ReadFile("../../../docs/KUBERNETES.md")
	if err != nil {
		c.t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| resources | verbs |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rules []map[string]any
	words := regexp.MustCompile("`([^`]+)`")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		rule := map[string]any{"apiGroups": []string{""}}
		for i, key := range []string{"resources", "verbs"} {
			var list []string
			for _, word := range words.FindAllStringSubmatch(cells[i+1], -1) {
				if strings.Contains(word[1], ".") {
					rule["apiGroups"] = []string{word[1]}
				} else {
					list = append(list, word[1])
				}
			}
			rule[key] = list
		}
		rules = append(rules, rule)
	}
	if len(rules) != 5 {
		c.t.Fatalf("%d rules in %q", len(rules), table)
	}
	role, err := json.Marshal(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": "orla"}, "rules": rules})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Kubectl(string(role), "-n", "tools", "apply", "-f", "-")
	c.Kubectl("", "-n", "tools", "create", "serviceaccount", "orla")
	c.Kubectl("", "-n", "tools", "create", "rolebinding", "orla", "--role=orla", "--serviceaccount=tools:orla")
	var answer struct {
		Status struct{ Token string }
	}
	if err := c.client.Do(c.t.Context(), kubeapi.Request{
		Method: http.MethodPost, Of: kubeapi.Resource{Version: "v1", Name: "serviceaccounts"}, Namespace: "tools", Name: "orla", Part: "token", Body: map[string]any{"spec": map[string]any{}},
	}, &answer); err != nil {
		c.t.Fatal(err)
	}
	admin := strings.TrimSpace(string(manifesttest.Read(c.t, filepath.Join(c.Dir, "admin.token"))))
	c.config = testkit.WriteTool(c.t, c.t.TempDir(), "config", strings.ReplaceAll(string(manifesttest.Read(c.t, c.Kubeconfig)), admin, answer.Status.Token))
}

// serve starts Orla without a tools folder, and with more in its environment.
func (c *k8s) serve(t *testing.T, env ...string) *running {
	t.Helper()
	o := startPrepared(t, t.TempDir(), withEnv(append(env, "KUBECONFIG="+c.config)...), orlaBinary(t), "serve", "--kubernetes", "--kubernetes-namespace", "tools", "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

func testServesACluster(t *testing.T, c *k8s, service string) {
	tool := func(name, path string) string {
		return fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {endpoint: %q, auth: {secretRef: key}}\n---\n", name, service+path)
	}
	apply := func(text string) { c.Kubectl(text, "-n", "tools", "apply", "-f", "-") }
	c.Kubectl("", "-n", "tools", "create", "secret", "generic", "key", "--from-literal=value=hunter2")
	apply(tool("first", "/1") + strings.Replace(tool("faulty", "/x"), service, "http://169.254.169.254", 1))
	o := c.serve(t)
	log := o.follow()
	if got := o.mustCall("first"); got != "/1 Bearer hunter2" && got != "/1 Bearer [redacted]" {
		t.Errorf("first = %q", got)
	}
	c.awaitReady("tool/first", "True served 1")
	c.awaitReady("tool/faulty", "False invalid 1")
	if got := c.Kubectl("", "-n", "tools", "get", "tools"); !strings.Contains(got, "READY") || !strings.Contains(got, "invalid") {
		t.Errorf("the table:\n%s", got)
	}
	testkit.Eventually(t, "there are events", func() bool {
		got := c.Kubectl("", "-n", "tools", "get", "events")
		return strings.Contains(got, "tool/first") && strings.Contains(got, "metadata")
	})

	apply(tool("first", "/2") + tool("second", "/3"))
	changed, added := 0.0, 0.0
	for changed+added < 2 { // in one reload, or in two if kubectl is slow
		l := log.next("reload", func(l map[string]any) bool { return l["reason"] != "start" })
		changed, added = changed+l["changed"].(float64), added+l["added"].(float64)
	}
	if changed != 1 || added != 1 {
		t.Errorf("%v changed, %v added", changed, added)
	}
	c.awaitReady("tool/first", "True served 2")
	if got := o.mustCall("second"); !strings.HasPrefix(got, "/3") {
		t.Errorf("second = %q", got)
	}
	c.Kubectl("", "-n", "tools", "delete", "tool", "second")
	if l := log.next("reload", nil); l["removed"] != 1.0 || l["kept"] != 1.0 {
		t.Errorf("got %v", l)
	}

	// A second replica writes nothing while the first one lives, and goes on at once when that stops.
	other := c.serve(t)
	o.signal(os.Interrupt)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if l := other.waitLog("lease acquired", nil); l["generation"] != 2.0 {
		t.Errorf("got %v", l)
	}
	apply(tool("faulty", "/good"))
	c.awaitReady("tool/faulty", "True served 2")
	for _, one := range []*running{o, other} {
		if one.count("the status of resources cannot be written; trying again", nil) > 0 {
			t.Error("a status could not be written")
		}
	}
}

// denied reports whether a call of the tool first is denied.
func denied(o *running) bool {
	o.t.Helper()
	a, err := o.call("first", "{}")
	if err != nil || a.Result == nil {
		o.t.Fatalf("%+v, %v", a, err)
	}
	return a.Result.IsError && strings.Contains(a.Result.Content[0].Text, "denied")
}

func testRulesOfACluster(t *testing.T, c *k8s) {
	o := c.serve(t)
	o.mustCall("first")
	c.Kubectl(`{"apiVersion": "orloj.dev/v1", "kind": "AgentPolicy", "metadata": {"name": "block"}, "spec": {"apply_mode": "global", "blocked_tools": ["first"]}}`, "-n", "tools", "apply", "-f", "-")
	testkit.Eventually(t, "the call is denied", func() bool {
		return denied(o)
	})
	c.awaitReady("agentpolicy/block", "True in_force 1")
	c.Kubectl("", "-n", "tools", "delete", "agentpolicy", "block")
	testkit.Eventually(t, "the call is allowed", func() bool {
		return !denied(o)
	})

	// Rules that nobody knows deny every call.
	c.Kubectl("", "delete", "crd", "agentroles.orloj.dev")
	other := c.serve(t)
	other.waitLog("every call is denied: a governance document cannot be read or names nothing", func(l map[string]any) bool {
		return strings.Contains(fmt.Sprint(l["err"]), "orla schema crds")
	})
	if !denied(other) {
		t.Error("a call is not denied")
	}
	c.Kubectl("", "apply", "-f", "../../../deploy/helm/orla/crds/agentroles.yaml")
	other.waitLog("calls are not denied any more", nil)
	other.mustCall("first")
}
