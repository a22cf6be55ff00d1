package resources_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/cluster/resources"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/manifest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// api is an API server in memory. Watches have no events: they wait for their end.
type api struct {
	mu       sync.Mutex        // guards the fields that follow
	lists    map[string]string // items by the plural of a kind
	secrets  map[string]string // data by name
	labels   map[string]string // of these
	status   int               // of all answers; 0 to serve
	away     bool
	requests []string // METHOD PATH of all but lists, watches and Leases
	bodies   []string // of those
	holder   string   // of the Lease
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(code int, text string) (*http.Response, error) {
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(text)), Header: http.Header{}}, nil
	}
	path := strings.Split(r.URL.Path, "/")
	last := path[len(path)-1]
	items, list := a.lists[last]
	switch {
	case a.away:
		return nil, errors.New("no route to the API server")
	case strings.Contains(r.URL.Path, "/leases"):
		if r.Method == http.MethodGet && a.holder == "" {
			return answer(http.StatusNotFound, `{"kind":"Status","reason":"NotFound"}`)
		}
		if r.Method != http.MethodGet {
			a.holder = string(sent)
			return answer(http.StatusOK, strings.Replace(a.holder, `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1))
		}
		return answer(http.StatusOK, a.holder)
	case r.Method == http.MethodGet && list:
		return answer(http.StatusOK, `{"metadata":{"resourceVersion":"1"},"items":[`+items+`]}`)
	}
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	a.bodies = append(a.bodies, string(sent))
	if a.status != 0 {
		return answer(a.status, `{"kind":"Status","message":"no"}`)
	}
	if path[len(path)-2] == "secrets" {
		data, there := a.secrets[last]
		if !there {
			return answer(http.StatusNotFound, `{"kind":"Status","reason":"NotFound"}`)
		}
		return answer(http.StatusOK, `{"metadata":{"labels":{`+a.labels[last]+`}},"data":{`+data+`}}`)
	}
	return answer(http.StatusOK, "{}")
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// asked returns the requests since the last time, with those of their bodies.
func (a *api) asked() (requests, bodies []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	requests, bodies = a.requests, a.bodies
	a.requests, a.bodies = nil, nil
	return requests, bodies
}

func (a *api) open(t *testing.T, log io.Writer) *resources.Resources {
	t.Helper()
	if a.lists == nil {
		a.lists = map[string]string{}
	}
	for _, plural := range []string{"tools", "mcpservers", "agentroles", "agentpolicies", "toolpermissions"} {
		if _, there := a.lists[plural]; !there {
			a.lists[plural] = ""
		}
	}
	return resources.New(resources.Options{Client: kubetest.Client(t, a), Namespace: "ops", Dir: "/tools", Holder: "me", Log: slog.New(slog.NewTextHandler(log, nil))})
}

// SPEC P2, SPEC-TOOLS 5.3: a Secret is read again after some seconds, and only in Orla's namespace. Its last values count
// while the API server does not answer, and not when it refuses.
func TestP2SecretsOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{secrets: map[string]string{"key": `"value":"aHVudGVyMgo=","other":"Zm9v"`}}
		r := a.open(t, io.Discard)
		want := func(name, value string) {
			t.Helper()
			values, found, err := r.Secret("ops", name)
			if err != nil || found != (value != "") || values["value"].Reveal() != value {
				t.Errorf("%s: %q, %v, %v; want %q", name, values["value"].Reveal(), found, err, value)
			}
		}
		for range 3 {
			want("key", "hunter2")
			want("none", "")
		}
		if requests, _ := a.asked(); len(requests) != 2 {
			t.Errorf("%q; want two requests", requests)
		}
		if _, found, err := r.Secret("default", "key"); found || err != nil {
			t.Errorf("another namespace: %v, %v", found, err)
		}
		a.set(func() { a.secrets["key"] = `"value":"bmV3"` })
		want("key", "hunter2")
		time.Sleep(6 * time.Second)
		want("key", "new")
		for _, broken := range []func(){func() { a.away = true }, func() { a.away, a.status = false, http.StatusInternalServerError }} {
			a.set(broken)
			time.Sleep(time.Hour)
			want("key", "new")
			if _, _, err := r.Secret("ops", "unknown"); err == nil {
				t.Error("a Secret that was never read is there")
			}
		}
		a.set(func() { a.status = http.StatusForbidden })
		time.Sleep(6 * time.Second)
		if _, _, err := r.Secret("ops", "key"); err == nil || !strings.Contains(err.Error(), "get secrets in the namespace ops") || strings.Contains(err.Error(), "new") {
			t.Errorf("refused: %v", err)
		}
		store := secret.New(secret.Options{Cluster: r.Secret})
		if _, err := store.Resolve(secret.Ref{Namespace: "ops", Name: "key"}); err == nil {
			t.Error("a source that fails does not end the search")
		}
	})
}

// SPEC P2, P4: no resource can refer to what Orla has made: with the key of sessions one could make the ids of others.
func TestP2NoResourceGetsASecretOfOrla(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{
			secrets: map[string]string{"orla-sessions": `"key":"aHVudGVyMgo="`, "of-a-call": `"value":"aHVudGVyMgo="`, "mine": `"value":"aHVudGVyMgo="`},
			labels:  map[string]string{"orla-sessions": `"orla.dev/replicas":"orla"`, "of-a-call": `"a":"b","orla.dev/instance":"x"`, "mine": `"example.com/orla.dev":"x"`},
		}
		r := a.open(t, io.Discard)
		for _, name := range []string{"orla-sessions", "of-a-call"} {
			values, found, err := r.Secret("ops", name)
			if err == nil || found || values != nil || !strings.Contains(err.Error(), "the Secret is Orla's own") {
				t.Errorf("%s: %v, %v, %v", name, values, found, err)
			}
		}
		if values, found, err := r.Secret("ops", "mine"); err != nil || !found || values["value"].Reveal() != "hunter2" {
			t.Errorf("%v, %v, %v", values, found, err)
		}
		a.set(func() { a.labels["mine"] = `"orla.dev/replicas":"orla"` })
		time.Sleep(6 * time.Second)
		if _, found, err := r.Secret("ops", "mine"); err == nil || found {
			t.Errorf("one that is Orla's by now: %v, %v", found, err)
		}
	})
}

func item(kind, name string, status string) string {
	return fmt.Sprintf(`{"apiVersion":"orloj.dev/v1","kind":%q,"metadata":{"name":%q,"namespace":"ops","uid":"u-%s","generation":7,"resourceVersion":"5"},"spec":{},"status":%s}`, kind, name, name, status)
}

// SPEC P2: the condition Ready has the fault or the state, is written only when it differs, and comes with an Event
// when the status or the reason does.
func TestP2StatusOfResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := `{"conditions":[{"type":"Ready","status":"True","reason":"served","message":"","observedGeneration":7,"lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"Mine","status":"True"}]}`
		earlier := strings.Replace(old, `"observedGeneration":7`, `"observedGeneration":6`, 1)
		a := &api{lists: map[string]string{
			"tools":      strings.Join([]string{item("Tool", "same", old), item("Tool", "later", earlier), item("Tool", "faulty", old), item("Tool", "broken", "{}"), item("Tool", "waits", "null")}, ","),
			"mcpservers": item("McpServer", "crashed", "{}") + "," + item("McpServer", "restarts", "{}"),
			"agentroles": item("AgentRole", "rule", "{}"),
		}}
		r := a.open(t, io.Discard)
		facts := resources.Facts{
			Served: map[string]string{},
			Problems: []manifest.Problem{
				{Path: "Tool/faulty", Tool: "faulty", Severity: manifest.Fault, Err: errors.New("Tool/faulty: spec: is wrong\nTool/faulty: spec.x: too")},
				{Tool: "broken", Severity: manifest.Fault, Err: fault.New(fault.IsolationUnavailable, "no sandbox")},
			},
			Lives: map[string]peer.Life{
				"crashed":  {State: "CRASHED", Reason: "it exited", Failures: 2},
				"restarts": {State: "STARTING", Reason: "again", Failures: 2},
			},
		}
		for _, source := range []string{"Tool/same", "Tool/later", "McpServer/crashed", "McpServer/restarts"} {
			_, name, _ := strings.Cut(source, "/")
			facts.Served[source] = name
		}
		stop := r.Start(t.Context(), func() resources.Facts { return facts })
		defer stop()
		r.Await(t.Context(), time.Minute)
		time.Sleep(10 * time.Second)
		if requests, _ := a.asked(); requests != nil {
			t.Errorf("before anything is applied: %q", requests)
		}
		if got := len(r.Snapshot().Documents); got != 8 {
			t.Errorf("%d documents", got)
		}
		r.Applied()
		time.Sleep(2 * time.Second) // the next round would write the same: the lists here do not change
		got := map[string]string{}
		requests, bodies := a.asked()
		events := 0
		for i, request := range requests {
			if strings.HasSuffix(request, "/events") {
				events++
				continue
			}
			var sent struct {
				Metadata struct{ UID string }
				Status   struct {
					Conditions []struct {
						Type, Status, Reason, Message, LastTransitionTime string
						ObservedGeneration                                int
					}
				}
			}
			if err := json.Unmarshal([]byte(bodies[i]), &sent); err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(request, "/")
			c := sent.Status.Conditions[0]
			got[parts[len(parts)-2]] = fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, " ", c.ObservedGeneration, " ", c.Message, " ", c.LastTransitionTime[:4], " ", len(sent.Status.Conditions), " ", sent.Metadata.UID)
		}
		for name, want := range map[string]string{
			"later":   "Ready True served 7  2020 2 u-later",
			"faulty":  "Ready False invalid 7 spec: is wrong; spec.x: too 2000 2 u-faulty",
			"broken":  "Ready False isolation_unavailable 7 " + fault.New(fault.IsolationUnavailable, "no sandbox").Error() + " 2000 1 u-broken",
			"waits":   "Ready False not_served 7 it is not served yet 2000 1 u-waits",
			"crashed": "Ready False crashed 7 it exited 2000 1 u-crashed",
			"rule":    "Ready True in_force 7  2000 1 u-rule",
		} {
			if got[name] != want {
				t.Errorf("%s: got  %s\nwant %s", name, got[name], want)
			}
		}
		if len(got) != 6 || events != 5 {
			t.Errorf("%d statuses, %d events; want 6 and 5", len(got), events)
		}
	})
}

// SPEC P2: who made a mistake hears of it first, however many statuses are to be written.
func TestP2AFaultyResourceAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []string
		facts := resources.Facts{Served: map[string]string{}}
		for n := range 1000 {
			name := fmt.Sprintf("tool-%04d", n)
			items = append(items, item("Tool", name, "{}"))
			facts.Served["Tool/"+name] = name
		}
		items = append(items, item("Tool", "zz-faulty", "{}"))
		facts.Problems = []manifest.Problem{{Path: "Tool/zz-faulty", Tool: "zz-faulty", Severity: manifest.Fault, Err: errors.New("Tool/zz-faulty: spec: is wrong")}}
		a := &api{lists: map[string]string{"tools": strings.Join(items, ",")}}
		r := a.open(t, io.Discard)
		stop := r.Start(t.Context(), func() resources.Facts { return facts })
		defer stop()
		r.Await(t.Context(), time.Minute)
		r.Snapshot()
		r.Applied()
		time.Sleep(time.Second)
		requests, _ := a.asked()
		if len(requests) == 0 || !strings.Contains(requests[0], "/zz-faulty/") || len(requests) > 100 {
			t.Errorf("in a second: %.300q", requests)
		}
	})
}

// SPEC P2: a status that may not be written is in the log once.
func TestP2StatusThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{lists: map[string]string{"tools": item("Tool", "a", "{}")}, status: http.StatusForbidden}
		var log bytes.Buffer
		r := a.open(t, &log)
		stop := r.Start(t.Context(), func() resources.Facts { return resources.Facts{} })
		r.Await(t.Context(), time.Minute)
		r.Snapshot()
		r.Applied()
		time.Sleep(time.Hour)
		stop()
		if n := strings.Count(log.String(), "cannot be written"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
		if requests, _ := a.asked(); len(requests) > 70 {
			t.Errorf("%d requests in an hour", len(requests))
		}
	})
}

// SPEC P2: kinds that were never listed are problems, and those of rules deny every call.
func TestP2UnknownKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{away: true}
		r := a.open(t, io.Discard)
		stop := r.Start(t.Context(), func() resources.Facts { return resources.Facts{} })
		defer stop()
		began := time.Now()
		r.Await(t.Context(), 10*time.Second)
		if time.Since(began) != 10*time.Second {
			t.Errorf("waited %s", time.Since(began))
		}
		denies := 0
		c := r.Snapshot()
		for _, p := range c.Problems {
			if p.Denies {
				denies++
			}
		}
		if len(c.Problems) != 5 || denies != 3 {
			t.Errorf("%+v", c.Problems)
		}
		<-r.Changed() // that they are not known
		a.set(func() { a.away = false })
		<-r.Changed()
		time.Sleep(time.Minute)
		if c := r.Snapshot(); len(c.Problems) != 0 {
			t.Errorf("%+v", c.Problems)
		}
	})
}

// A process without a cluster has none of it.
func TestNoCluster(t *testing.T) {
	var r *resources.Resources
	r.Start(t.Context(), nil)()
	r.Await(t.Context(), time.Hour)
	r.Applied()
	if r.Changed() != nil || r.Snapshot() != nil {
		t.Error("there is something")
	}
	if _, found, err := r.Secret("default", "a"); found || err != nil {
		t.Error("there is a Secret")
	}
}

// SPEC P2, S2: while nothing changes, a look at the status of many resources leaves no garbage of their size.
func TestP2ALookAtManyStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, rounds = 1000, 20
		written := `{"conditions":[{"type":"Ready","status":"True","reason":"served","message":"","observedGeneration":7,"lastTransitionTime":"2020-01-01T00:00:00Z"}]}`
		var items []string
		facts := resources.Facts{Served: map[string]string{}}
		for n := range many {
			name := fmt.Sprintf("tool-%04d", n)
			items = append(items, item("Tool", name, written))
			facts.Served["Tool/"+name] = name
		}
		a := &api{lists: map[string]string{"tools": strings.Join(items, ",")}}
		r := a.open(t, io.Discard)
		var looks atomic.Int64
		stop := r.Start(t.Context(), func() resources.Facts { looks.Add(1); return facts })
		defer stop()
		r.Await(t.Context(), time.Minute)
		r.Snapshot()
		r.Applied()
		time.Sleep(3500 * time.Millisecond)
		before, first := allocated(), looks.Load()
		time.Sleep(rounds * 3 * time.Second)
		bytes := (allocated() - before) / rounds
		if requests, _ := a.asked(); len(requests) != 0 || looks.Load()-first != rounds {
			t.Fatalf("%d looks; %.200q", looks.Load()-first, requests)
		}
		if bytes > 32*many {
			t.Errorf("a look at %d statuses takes %d bytes", many, bytes)
		}
	})
}

// allocated is how many bytes were allocated so far.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
