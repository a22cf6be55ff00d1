package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3" //nolint:depguard // the file is of Kubernetes and not ours
)

type object = map[string]any

// token is what the fake API knows Orla by.
const token = "orla-token-s3cret"

// fakeAPI speaks what a Kubernetes API server says to Orla: the few resources,
// with watches, resource versions, propagation and the shapes of its errors,
// over TLS and with a bearer token. It is the controller of Jobs and the node of
// their pods as well. It grants what deploy/kubernetes grants, and nothing else.
type fakeAPI struct {
	*httptest.Server

	t       *testing.T
	granted map[string]bool // "verb resource"

	mu       sync.Mutex // guards the fields that follow
	version  int
	objects  map[string]object // "resource/name"
	watchers map[chan object]string
	history  []object // of changes
	requests []string // "verb resource/name"
	bodies   []string // of creations
	play     part     // what the next pods do
	fault    func(asked string, n int) *refusal
	asked    map[string]int
	released sync.WaitGroup
	closing  chan struct{}
	// replicas is how many pods were made.
	replicas int
}

// refusal is an answer in place of the right one.
type refusal struct {
	status int
	header http.Header
	body   object
	drop   bool          // the connection is closed
	after  bool          // the request is served before
	wait   time.Duration // before the answer
	cut    int           // a watch ends after so many events; -1: at once with 410
}

// part is what a pod does.
type part struct {
	waiting  [2]string // it stays so: reason and message
	pending  string    // no node takes it: the message
	noPod    string    // none is made, and this is the event's message
	refusals int       // how often the event says that; 0: once
	log      string
	logs     chan string // more of it, until closed
	logDrop  int         // the log's stream breaks after so many bytes, once
	code     int
	reason   string // of the container's end; "" is Completed or Error
	message  string
	pod      [2]string // reason and message of the pod's own end
	forever  bool      // until it is deleted
	deaf     bool      // also then
	deleted  bool      // somebody deletes it while it runs
	deadline bool      // the Job's deadline passes while it runs
	change   func(pod object)
}

func newFake(t *testing.T) *fakeAPI {
	f := &fakeAPI{
		t: t, objects: map[string]object{}, watchers: map[chan object]string{}, asked: map[string]int{},
		granted: roleOf(t), closing: make(chan struct{}),
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() {
		close(f.closing)
		f.CloseClientConnections()
		f.Close()
		f.released.Wait()
	})
	return f
}

// roleOf reads what deploy/kubernetes grants.
func roleOf(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "kubernetes", "orla.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for d := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var doc struct {
			Kind  string
			Rules []struct {
				APIGroups []string `yaml:"apiGroups"`
				Resources []string
				Verbs     []string
			}
		}
		if err := d.Decode(&doc); err != nil {
			break
		}
		for _, rule := range doc.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[verb+" "+resource] = true
				}
			}
		}
	}
	if len(granted) == 0 {
		t.Fatal("deploy/kubernetes/orla.yaml grants nothing")
	}
	return granted
}

// kubeconfig writes a file that leads to the fake.
func (f *fakeAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	writeCA(t, ca, f.Certificate().Raw)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: fake\ncontexts: [{name: fake, context: {cluster: fake, user: orla}}]\n"+
		"clusters: [{name: fake, cluster: {server: %q, certificate-authority: %q}}]\nusers: [{name: orla, user: {token: %q}}]\n", f.URL, ca, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServeHTTP answers as an API server does.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		answer(w, 401, status(401, "Unauthorized", "Unauthorized"))
		return
	}
	if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		f.review(w, r)
		return
	}
	verb, resource, name := asked(r)
	what := verb + " " + resource
	f.mu.Lock()
	f.requests = append(f.requests, strings.TrimSuffix(what+"/"+name, "/"))
	n := f.asked[what]
	f.asked[what]++
	var wrong *refusal
	if f.fault != nil {
		wrong = f.fault(what, n)
	}
	allowed := f.granted[what]
	f.mu.Unlock()
	switch {
	case !allowed:
		answer(w, 403, status(403, "Forbidden", fmt.Sprintf(`%s is forbidden: User "orla" cannot %s resource %q in API group "" in the namespace "tools"`, resource, verb, resource)))
		return
	case wrong != nil && wrong.wait > 0:
		select {
		case <-time.After(wrong.wait):
		case <-r.Context().Done():
		case <-f.closing:
		}
	}
	if wrong != nil && wrong.after {
		f.serve(httptest.NewRecorder(), r, verb, resource, name, nil)
	}
	switch {
	case wrong != nil && wrong.drop:
		panic(http.ErrAbortHandler)
	case wrong != nil && wrong.status != 0:
		maps.Copy(w.Header(), wrong.header)
		body := wrong.body
		if body == nil {
			body = status(wrong.status, http.StatusText(wrong.status), "planned")
		}
		answer(w, wrong.status, body)
		return
	}
	f.serve(w, r, verb, resource, name, wrong)
}

// review answers whether Orla may do something.
func (f *fakeAPI) review(w http.ResponseWriter, r *http.Request) {
	var o struct {
		Spec struct {
			ResourceAttributes struct{ Verb, Resource, Subresource string }
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&o)
	a := o.Spec.ResourceAttributes
	answer(w, 201, object{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": object{
		"allowed": f.granted[a.Verb+" "+strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")],
	}})
}

// asked is a request in the words of a role.
func asked(r *http.Request) (verb, resource, name string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	i := slices.Index(parts, "namespaces")
	if i < 0 || len(parts) < i+3 || parts[i+1] != "tools" {
		return "?", r.URL.Path, ""
	}
	resource = parts[i+2]
	if len(parts) > i+3 {
		name = parts[i+3]
	}
	if len(parts) > i+4 {
		resource += "/" + parts[i+4]
	}
	switch {
	case r.Method == http.MethodGet && name != "":
		verb = "get"
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		verb = "watch"
	case r.Method == http.MethodGet:
		verb = "list"
	default:
		verb = map[string]string{"POST": "create", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	}
	return verb, resource, name
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request, verb, resource, name string, wrong *refusal) {
	switch {
	case resource == "pods/log":
		f.serveLog(w, r, name)
	case verb == "watch":
		f.serveWatch(w, r, wrong)
	case verb == "create":
		f.create(w, r, resource)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.serveObjects(w, r, verb, resource, name)
	}
}

func (f *fakeAPI) serveObjects(w http.ResponseWriter, r *http.Request, verb, resource, name string) {
	o, found := f.objects[resource+"/"+name]
	if name != "" && !found {
		answer(w, 404, status(404, "NotFound", fmt.Sprintf("%s %q not found", resource, name)))
		return
	}
	switch verb {
	case "list":
		items := []any{}
		for _, o := range f.selected(resource, r.URL.Query().Get("labelSelector")) {
			items = append(items, o)
		}
		answer(w, 200, object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": strconv.Itoa(f.version)}, "items": items})
	case "get":
		answer(w, 200, o)
	case "patch":
		spec, _ := o["spec"].(object)
		if raw, _ := io.ReadAll(r.Body); resource == "jobs" && strings.Contains(string(raw), `"suspend":false`) && spec["suspend"] == true {
			spec["suspend"] = false
			f.makePod(o)
		}
		answer(w, 200, o)
	case "delete":
		f.delete(resource, name)
		answer(w, 200, status(200, "", ""))
	}
}

// selected lists what has the labels of a selector.
func (f *fakeAPI) selected(resource, selector string) []object {
	var all []object
	for key, o := range f.objects {
		if strings.HasPrefix(key, resource+"/") && matches(o, selector) {
			all = append(all, o)
		}
	}
	return all
}

func matches(o object, selector string) bool {
	meta, _ := o["metadata"].(object)
	labels, _ := meta["labels"].(object)
	for want := range strings.SplitSeq(selector, ",") {
		if key, value, ok := strings.Cut(want, "="); ok && labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fakeAPI) create(w http.ResponseWriter, r *http.Request, resource string) {
	raw, _ := io.ReadAll(r.Body)
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		answer(w, 400, status(400, "BadRequest", err.Error()))
		return
	}
	meta := o["metadata"].(object)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies = append(f.bodies, string(raw))
	key := resource + "/" + meta["name"].(string)
	if _, there := f.objects[key]; there {
		answer(w, 409, status(409, "AlreadyExists", key+" already exists"))
		return
	}
	f.version++
	meta["uid"] = "uid-" + strconv.Itoa(f.version)
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta["resourceVersion"] = strconv.Itoa(f.version)
	f.objects[key] = o
	answer(w, 201, o)
	if spec, _ := o["spec"].(object); resource == "jobs" && spec["suspend"] != true {
		f.makePod(o)
	}
}

// delete removes an object as the cluster's controllers do: with what it owns.
func (f *fakeAPI) delete(resource, name string) {
	delete(f.objects, resource+"/"+name)
	if resource != "jobs" {
		return
	}
	for key, o := range f.objects {
		meta, _ := o["metadata"].(object)
		owners, _ := meta["ownerReferences"].([]any)
		for _, owner := range owners {
			if owner.(object)["name"] == name && !strings.HasPrefix(key, "pods/") {
				delete(f.objects, key)
			}
		}
	}
	if p, ok := f.objects["pods/"+name+"-pod"]; ok {
		p["metadata"].(object)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.changed("MODIFIED", p)
	}
}

// changed tells the watchers of a pod.
func (f *fakeAPI) changed(kind string, pod object) {
	f.version++
	pod["metadata"].(object)["resourceVersion"] = strconv.Itoa(f.version)
	change := object{"type": kind, "object": clone(pod)}
	f.history = append(f.history, change)
	for watcher, selector := range f.watchers {
		if matches(pod, selector) {
			watcher <- change
		}
	}
}

// versionOf is that of a changed pod.
func versionOf(change object) int {
	text, _ := change["object"].(object)["metadata"].(object)["resourceVersion"].(string)
	version, _ := strconv.Atoi(text)
	return version
}

func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request, wrong *refusal) {
	w.Header().Set("Content-Type", "application/json")
	selector := r.URL.Query().Get("labelSelector")
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if wrong != nil && wrong.cut < 0 {
		_ = json.NewEncoder(w).Encode(object{"type": "ERROR", "object": status(410, "Expired", "too old resource version")})
		return
	}
	changes := make(chan object, 100)
	f.mu.Lock()
	for _, change := range f.history { // what happened between the list and the watch
		if versionOf(change) > since && matches(change["object"].(object), selector) {
			changes <- change
		}
	}
	f.watchers[changes] = selector
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, changes)
	}()
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	for n := 1; ; n++ {
		select {
		case change := <-changes:
			_ = json.NewEncoder(w).Encode(change)
			w.(http.Flusher).Flush()
			if wrong != nil && n >= wrong.cut {
				return
			}
		case <-r.Context().Done():
			return
		case <-f.closing:
			return
		}
	}
}

func answer(w http.ResponseWriter, code int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func status(code int, reason, message string) object {
	result := "Failure"
	if code < 300 {
		result = "Success"
	}
	return object{"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": result, "message": message, "reason": reason, "code": code}
}

func clone(o object) object {
	raw, _ := json.Marshal(o)
	var c object
	_ = json.Unmarshal(raw, &c)
	return c
}
