package kube_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3" //nolint:depguard // the file is of Kubernetes and not ours

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/kubetest"
)

// realCluster is a real API server with its Job controller and garbage
// collector, and without nodes: this is its scheduler and its node, by the same
// API.
type realCluster struct {
	t          *testing.T
	url, admin string
	namespace  string
	port       int // of the kubelet
	ctx        context.Context
	acting     sync.WaitGroup

	mu   sync.Mutex // guards the fields that follow
	play part
	over map[string]bool // pods whose container has ended
	ends map[string]chan struct{}
}

// SPEC-TOOLS 7.4: Jobs of a real cluster.
func TestT74RealCluster(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	t.Run("API", func(t *testing.T) { testRealAPI(t, c) })
	t.Run("restricted", func(t *testing.T) { testRealRestricted(t, c) })
	t.Run("orphans", func(t *testing.T) { testRealOrphans(t, c) })
}

func newReal(t *testing.T, c *kubetest.Cluster) *realCluster {
	t.Helper()
	r := &realCluster{t: t, over: map[string]bool{}, ends: map[string]chan struct{}{}}
	r.url = strings.TrimSpace(read(t, filepath.Join(c.Dir, "url")))
	r.admin = strings.TrimSpace(read(t, filepath.Join(c.Dir, "admin.token")))
	r.namespace = fmt.Sprintf("orla-test-%d", time.Now().UnixNano())
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	kubelet := httptest.NewTLSServer(http.HandlerFunc(r.serveLog))
	r.port = kubelet.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() {
		r.do("DELETE", "/api/v1/namespaces/"+r.namespace, nil)
		cancel()
		r.acting.Wait()
		kubelet.CloseClientConnections()
		kubelet.Close()
	})
	r.must("POST", "/api/v1/namespaces", object{"metadata": object{"name": r.namespace}})
	r.must("POST", "/api/v1/nodes", object{"metadata": object{"name": r.namespace}})
	r.must("PATCH", "/api/v1/nodes/"+r.namespace+"/status", object{"status": object{
		"addresses":       []any{object{"type": "InternalIP", "address": "127.0.0.1"}},
		"daemonEndpoints": object{"kubeletEndpoint": object{"Port": r.port}},
		"conditions":      []any{object{"type": "Ready", "status": "True"}},
	}})
	t.Cleanup(func() { r.do("DELETE", "/api/v1/nodes/"+r.namespace, nil) })
	r.acting.Go(r.act)
	return r
}

var admin = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a test's own server

func (r *realCluster) do(method, path string, body any) (int, object) {
	raw, _ := json.Marshal(body)
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.admin)
	req.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := admin.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var answer object
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

func (r *realCluster) must(method, path string, body any) object {
	r.t.Helper()
	code, answer := r.do(method, path, body)
	if code >= 300 {
		r.t.Fatalf("%s %s: %d %v", method, path, code, answer["message"])
	}
	return answer
}

// in is a path in the namespace.
func (r *realCluster) in(path string) string {
	group := "/api/v1"
	switch kind, _, _ := strings.Cut(path, "/"); kind {
	case "jobs":
		group = "/apis/batch/v1"
	case "networkpolicies":
		group = "/apis/networking.k8s.io/v1"
	case "roles", "rolebindings":
		group = "/apis/rbac.authorization.k8s.io/v1"
	}
	return group + "/namespaces/" + r.namespace + "/" + path
}

// kubeconfig grants what deploy/kubernetes does, and leads there by addr.
func (r *realCluster) kubeconfig(addr string) string {
	raw := read(r.t, filepath.Join("..", "..", "..", "deploy", "kubernetes", "orla.yaml"))
	kinds := map[string]string{"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}
	for d := yaml.NewDecoder(strings.NewReader(raw)); ; {
		var doc object
		if err := d.Decode(&doc); err != nil {
			break
		}
		r.must("POST", r.in(kinds[doc["kind"].(string)]), doc)
	}
	token := at(r.t, r.must("POST", r.in("serviceaccounts/orla/token"), object{"spec": object{}}), "status")["token"]
	return write(r.t, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: %q}}]\n", addr, token))
}

// act follows the Pods of the namespace, and begins with each that comes.
func (r *realCluster) act() {
	for r.ctx.Err() == nil {
		r.watch()
		r.wait(20 * time.Millisecond) // it has ended or was refused
	}
}

// watch follows the Pods until the API server ends that.
func (r *realCluster) watch() {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+r.in("pods")+"?watch=true", nil)
	if err != nil {
		r.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+r.admin)
	resp, err := admin.Do(req)
	if err != nil {
		return // the test is over, or the server is away
	}
	defer func() { _ = resp.Body.Close() }()
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   string
			Object struct {
				Metadata struct {
					Name              string
					DeletionTimestamp string
				}
			}
		}
		if events.Decode(&event) != nil {
			return
		}
		name := event.Object.Metadata.Name
		if name == "" {
			continue
		}
		ends, began := r.podOf(name)
		if !began {
			r.acting.Go(func() { r.actOne(name, ends) })
		}
		if event.Type == "DELETED" || event.Object.Metadata.DeletionTimestamp != "" {
			r.mu.Lock()
			select {
			case <-ends:
			default:
				close(ends)
			}
			r.mu.Unlock()
		}
	}
}

// podOf returns what is closed when a Pod is being deleted, and whether it was known before.
func (r *realCluster) podOf(name string) (ends chan struct{}, began bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends, began = r.ends[name]
	if !began {
		ends = make(chan struct{})
		r.ends[name] = ends
	}
	return ends, began
}

func (r *realCluster) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}

// actOne is the scheduler and the node of one Pod, until ends is closed and it is to be deleted.
func (r *realCluster) actOne(name string, ends <-chan struct{}) {
	r.mu.Lock()
	part := r.play
	r.mu.Unlock()
	set := func(status object) { r.do("PATCH", r.in("pods/"+name+"/status"), object{"status": status}) }
	if part.pending != "" {
		set(object{"phase": "Pending", "conditions": []any{object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": part.pending}}})
		return
	}
	r.do("POST", r.in("pods/"+name+"/binding"), object{"metadata": object{"name": name}, "target": object{"kind": "Node", "name": r.namespace}})
	if part.waiting[0] != "" {
		set(statusOf("Pending", object{"waiting": object{"reason": part.waiting[0], "message": part.waiting[1]}}))
		r.until(ends)
		r.do("DELETE", r.in("pods/"+name), object{"gracePeriodSeconds": 0})
		return
	}
	set(statusOf("Pending", object{"waiting": object{"reason": "ContainerCreating"}}))
	set(statusOf("Running", object{"running": object{"startedAt": "2026-01-01T00:00:00Z"}}))
	if part.forever {
		r.until(ends)
		part.code = 143
	}
	phase := map[bool]string{true: "Succeeded", false: "Failed"}[part.code == 0]
	r.mu.Lock()
	r.over[name] = true
	r.mu.Unlock()
	set(statusOf(phase, object{"terminated": object{"exitCode": part.code, "reason": part.reason}}))
	r.until(ends)
	r.do("DELETE", r.in("pods/"+name), object{"gracePeriodSeconds": 0})
}

func (r *realCluster) until(ends <-chan struct{}) {
	select {
	case <-ends:
	case <-r.ctx.Done():
	}
}

// serveLog is the kubelet's, which the API server asks.
func (r *realCluster) serveLog(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/") // containerLogs/NAMESPACE/POD/CONTAINER
	if len(parts) != 4 || parts[0] != "containerLogs" {
		http.NotFound(w, req)
		return
	}
	r.mu.Lock()
	text := r.play.log
	r.mu.Unlock()
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
	for req.URL.Query().Get("follow") == "true" && req.Context().Err() == nil && r.ctx.Err() == nil {
		r.mu.Lock()
		over := r.over[parts[2]]
		r.mu.Unlock()
		if over {
			return
		}
		r.wait(10 * time.Millisecond)
	}
}

func (r *realCluster) will(p part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.play = p
}

func (r *realCluster) none(resources ...string) {
	r.t.Helper()
	for _, resource := range resources {
		deadline := time.Now().Add(2 * patience)
		for {
			items, _ := r.must("GET", r.in(resource), nil)["items"].([]any)
			if len(items) == 0 {
				break
			}
			if time.Now().After(deadline) {
				r.t.Errorf("left: %d %s", len(items), resource)
				break
			}
			r.wait(50 * time.Millisecond)
		}
	}
}

// SPEC-TOOLS 7.4: the client against a real API server, Job controller and
// garbage collector, as the service account of deploy/kubernetes. With
// ORLA_TEST_KUBE_RECORD it records what is said.
func testRealAPI(t *testing.T, cluster *kubetest.Cluster) {
	r := newReal(t, cluster)
	addr := r.url
	var tape *recorder
	if os.Getenv("ORLA_TEST_KUBE_RECORD") != "" {
		tape = newRecorder(t, r.url)
		addr = tape.URL
	}
	c := open(t, kube.Options{
		Kubeconfig: r.kubeconfig(addr), Namespace: r.namespace, Instance: "/tools",
		Secrets: func(secret.Ref) (secret.Value, error) { return secret.NewValue("me:pass"), nil },
	})
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	l := c.Launcher(weather)
	step := func(name string, f func(t *testing.T)) {
		tape.begin()
		t.Run(name, f)
		tape.end(t, name, r.namespace)
	}
	step("a call", func(t *testing.T) {
		r.will(part{log: "sunny\n", code: 3, reason: "Error"})
		out, exit := run(t, l, hello)
		if out != "sunny\n" || exit != (launch.Exit{Code: 3}) {
			t.Errorf("%q %+v", out, exit)
		}
	})
	r.none("jobs", "pods", "secrets")
	step("pull secret", func(t *testing.T) {
		r.will(part{log: "sunny\n"})
		tool := weather
		tool.PullSecret = secret.Ref{Namespace: "default", Name: "registry", Key: "value"}
		tool.Network = kube.ClusterNetwork
		spec := hello
		spec.Secrets = nil
		if out, exit := run(t, c.Launcher(tool), spec); out != "sunny\n" || exit != (launch.Exit{}) {
			t.Errorf("%q %+v", out, exit)
		}
	})
	step("stop", func(t *testing.T) {
		r.will(part{log: "so far\n", forever: true, reason: "Error"})
		p, err := l.Start(t.Context(), hello)
		if err != nil {
			t.Fatal(err)
		}
		_, stdout, _ := p.Streams()
		if _, err := io.ReadFull(stdout, make([]byte, 7)); err != nil {
			t.Error(err)
		}
		p.Stop()
		if out, exit := finish(t, p); exit.Err == nil {
			t.Errorf("%q %+v", out, exit)
		}
	})
	step("image pull", func(t *testing.T) {
		r.will(part{waiting: [2]string{"ErrImagePull", "manifest unknown"}})
		if err := startErr(t, l, patience); !strings.Contains(err.Reason, "manifest unknown") {
			t.Error(err)
		}
	})
	step("deadline", func(t *testing.T) { // of the Job, as if Orla were not there to stop it
		r.will(part{forever: true, reason: "Error"})
		inTime(t, func(ctx context.Context) error {
			p, err := l.Start(ctx, hello)
			if err != nil {
				return err
			}
			if _, exit := finish(t, p); fault.CodeOf(exit.Err) != fault.Timeout {
				t.Errorf("%+v", exit)
			}
			return nil
		})
	})
	step("unschedulable", func(t *testing.T) {
		r.will(part{pending: "0/1 nodes are available: 1 Insufficient memory."})
		for within := 2 * time.Second; ; within *= 2 { // a busy cluster may take that long to say why
			err := startErr(t, l, within)
			if err.Code == fault.Timeout && strings.Contains(err.Reason, "Insufficient memory") {
				return
			}
			if err.Code != fault.Timeout || within > 30*time.Second {
				t.Fatal(err)
			}
		}
	})
	step("refused", func(t *testing.T) {
		spec := hello
		spec.Env = []string{"A\x01B=x"}
		if _, err := l.Start(t.Context(), spec); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Error(err)
		}
	})
	r.must("POST", r.in("resourcequotas"), object{"metadata": object{"name": "q"}, "spec": object{"hard": object{"pods": "0"}}})
	r.must("PATCH", r.in("resourcequotas/q/status"), object{"status": object{"hard": object{"pods": "0"}, "used": object{"pods": "0"}}})
	step("quota", func(t *testing.T) {
		r.will(part{})
		began := time.Now()
		if err := startErr(t, l, 30*time.Second); err.Code != fault.IsolationUnavailable || !err.Retryable() || !strings.Contains(err.Reason, "exceeded quota") {
			t.Error(err)
		}
		t.Logf("refused after %s, of 30 s", time.Since(began))
	})
	r.must("DELETE", r.in("resourcequotas/q"), nil)
	r.must("POST", r.in("limitranges"), object{"metadata": object{"name": "l"}, "spec": object{"limits": []any{object{"type": "Container", "min": object{"memory": "4Gi"}}}}})
	step("limit range", func(t *testing.T) {
		r.will(part{})
		began := time.Now()
		if err := startErr(t, l, 30*time.Second); err.Code != fault.IsolationUnavailable || err.Retryable() || !strings.Contains(err.Reason, "minimum memory usage per Container is 4Gi") {
			t.Error(err)
		}
		t.Logf("refused after %s, of 30 s", time.Since(began))
	})
	r.must("DELETE", r.in("limitranges/l"), nil)
	step("a call's deadline", func(t *testing.T) {
		r.will(part{log: "so far\n", forever: true, reason: "Error"})
		inTime(t, func(ctx context.Context) error {
			ran, err := launch.Run(ctx, l, hello, func([]byte) {}, func([]byte) {})
			if err != nil {
				return err
			}
			by, _ := ctx.Deadline()
			if !ran.Stopped {
				t.Errorf("%+v", ran)
			}
			t.Logf("answered %s after the deadline", time.Since(by))
			return nil
		})
	})
	c.Close()
	r.none("jobs", "pods", "secrets")
}

// inTime calls f with a deadline of two seconds, and with longer ones while the
// Job has not started within them: a busy cluster may take that long.
func inTime(t *testing.T, f func(context.Context) error) {
	t.Helper()
	for within := 2 * time.Second; ; within *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || within > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// SPEC-TOOLS 7.4: a namespace that has the strictest of the standards for pods takes the Job.
func testRealRestricted(t *testing.T, cluster *kubetest.Cluster) {
	r := newReal(t, cluster)
	r.must("PATCH", "/api/v1/namespaces/"+r.namespace, object{"metadata": object{"labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}})
	c := open(t, kube.Options{Kubeconfig: r.kubeconfig(r.url), Namespace: r.namespace})
	r.will(part{log: "sunny\n"})
	if out, exit := run(t, c.Launcher(weather), hello); out != "sunny\n" || exit != (launch.Exit{}) {
		t.Errorf("%q %+v", out, exit)
	}
}

// SPEC-TOOLS 7.4: what Orla does not remove, the cluster does: the Secrets with
// the Job, and the Job after its time to live.
func testRealOrphans(t *testing.T, cluster *kubetest.Cluster) {
	r := newReal(t, cluster)
	c := open(t, kube.Options{Kubeconfig: r.kubeconfig(r.url), Namespace: r.namespace, TTL: time.Second})
	r.will(part{forever: true, reason: "Error"})
	inTime(t, func(ctx context.Context) error { // the Job's deadline
		p, err := c.Launcher(weather).Start(ctx, hello)
		if err != nil {
			return err
		}
		// The account is taken away, so that no request of Orla's is heard any more.
		r.must("DELETE", r.in("rolebindings/orla"), nil)
		r.none("jobs", "pods", "secrets")
		p.Stop()
		finish(t, p)
		return nil
	})
}

// exchange is one request and its answer.
type exchange struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Query  string          `json:"-"`
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status"`
	Type   string          `json:"type,omitempty"`
	Answer string          `json:"answer"`
}

// recorder stands between the client and an API server, and keeps what they say.
type recorder struct {
	*httptest.Server

	mu  sync.Mutex // guards all
	all []*exchange
}

func newRecorder(t *testing.T, to string) *recorder {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = admin.Transport
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {}
	r := &recorder{}
	proxy.ModifyResponse = func(resp *http.Response) error {
		e := resp.Request.Context().Value(exchangeKey{}).(*exchange)
		e.Status, e.Type = resp.StatusCode, resp.Header.Get("Content-Type")
		resp.Body = &taped{resp.Body, r, e}
		return nil
	}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(raw))
		req.Header.Set("Accept-Encoding", "identity")
		e := &exchange{Method: req.Method, Path: req.URL.Path, Query: req.URL.RawQuery, Body: raw}
		r.mu.Lock()
		r.all = append(r.all, e)
		r.mu.Unlock()
		proxy.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), exchangeKey{}, e)))
	}))
	t.Cleanup(r.Close)
	return r
}

type exchangeKey struct{}

type taped struct {
	io.ReadCloser

	tape *recorder
	of   *exchange
}

func (b *taped) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tape.mu.Lock()
	defer b.tape.mu.Unlock()
	b.of.Answer += string(p[:n])
	return n, err
}

func (r *recorder) begin() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = nil
	}
}

// end writes testdata/NAME.json, without what is the test's alone.
func (r *recorder) end(t *testing.T, name, namespace string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		e.Path, e.Query = strings.ReplaceAll(e.Path, namespace, "tools"), ""
		e.Answer = strings.ReplaceAll(withoutManagers(e.Answer), namespace, "tools")
		e.Body = json.RawMessage(strings.ReplaceAll(string(e.Body), namespace, "tools"))
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r.all); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "recorded", strings.ReplaceAll(name, " ", "-")+".json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text.String()), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Log(path + " " + strconv.Itoa(len(r.all)))
}

// withoutManagers is an answer, or the changes of a watch, without what the
// server keeps of who set which field.
func withoutManagers(answer string) string {
	var lines []string
	for line := range strings.Lines(answer) {
		var v any
		if json.Unmarshal([]byte(line), &v) != nil {
			return answer // a log
		}
		prune(v)
		raw, _ := json.Marshal(v)
		lines = append(lines, string(raw)+"\n")
	}
	return strings.Join(lines, "")
}

func prune(v any) {
	switch v := v.(type) {
	case object:
		delete(v, "managedFields")
		for _, each := range v {
			prune(each)
		}
	case []any:
		for _, each := range v {
			prune(each)
		}
	}
}
