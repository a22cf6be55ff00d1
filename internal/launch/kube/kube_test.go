package kube_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func writeCA(t *testing.T, path string, der []byte) {
	t.Helper()
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

var weather = kube.Tool{
	Name: "Weather_Report", Image: "registry.example:5000/weather:1", Network: kube.NoNetwork,
	Limits: cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64},
}

var hello = launch.Spec{
	Path: "weather", Argv: []string{"weather", "--city", "Rome $(API_KEY) $5"}, Env: []string{"LANG=C.UTF-8", "PRICE=$(HOME)"},
	Secrets: []string{"API_KEY=hunter2"}, Input: []byte{}, ID: "call-1",
}

// patience bounds what has to come.
const patience = time.Minute

// open returns a Cluster that is closed at the end.
func open(t *testing.T, opts kube.Options) *kube.Cluster {
	t.Helper()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Namespace == "" {
		opts.Namespace = "tools"
	}
	c := kube.New(opts)
	t.Cleanup(c.Close)
	return c
}

// run starts a process, and returns what it printed and how it ended.
func run(t *testing.T, l launch.Launcher, spec launch.Spec) (string, launch.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // which is in what was recorded
	defer cancel()
	p, err := l.Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, p)
}

func finish(t *testing.T, p launch.Process) (string, launch.Exit) {
	t.Helper()
	_, stdout, stderr := p.Streams()
	defer func() { _, _ = stdout.Close(), stderr.Close() }()
	out, err := io.ReadAll(stdout)
	if err != nil {
		t.Error(err)
	}
	if text, _ := io.ReadAll(stderr); len(text) > 0 {
		t.Errorf("stderr: %q", text)
	}
	select {
	case <-p.Exited():
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	<-p.Gone()
	return string(out), p.Exit()
}

// startErr starts what cannot be started.
func startErr(t *testing.T, l launch.Launcher, within time.Duration) *fault.Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	p, err := l.Start(ctx, hello)
	if err == nil {
		p.Kill()
		finish(t, p)
		t.Fatal("it was started")
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("%v is not a fault", err)
	}
	return f
}

// sees counts what an API was asked, without the names.
func (f *fakeAPI) sees() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.asked)
}

func (f *fakeAPI) wasAsked(request string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.requests, request)
}

// left lists what there is of a resource.
func (f *fakeAPI) left(resources ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for key := range f.objects {
		if slices.Contains(resources, strings.Split(key, "/")[0]) {
			names = append(names, key)
		}
	}
	return names
}

func (f *fakeAPI) will(p part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.play = p
}

func (f *fakeAPI) fail(plan func(asked string, n int) *refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = plan
}

// SPEC-TOOLS 7.4: a call is a Job, whose log is the output, and nothing is left of it.
func TestT74ACallIsAJob(t *testing.T) {
	f := newFake(t)
	f.will(part{log: "sunny\n"})
	c := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
	p, err := c.Launcher(weather).Start(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	if want := (launch.Applied{Tree: cgroup.Limits{Memory: 128 << 20, CPUs: 0.5}}); p.Applied() != want { // and no number of processes
		t.Errorf("applied: %+v; want %+v", p.Applied(), want)
	}
	out, exit := finish(t, p)
	if out != "sunny\n" || exit != (launch.Exit{}) {
		t.Errorf("%q, %+v", out, exit)
	}
	if left := f.left("jobs", "secrets"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// SPEC-TOOLS 7.4: the Job is what its process may do.
func TestT74JobIsHeld(t *testing.T) {
	f := newFake(t)
	c := open(t, kube.Options{
		Kubeconfig: f.kubeconfig(t), TTL: 90 * time.Second,
		Secrets: func(secret.Ref) (secret.Value, error) { return secret.NewValue("me:pass"), nil },
	})
	tool := weather
	tool.PullSecret = secret.Ref{Namespace: "default", Name: "registry", Key: "value"}
	ctx, cancel := context.WithTimeout(t.Context(), 29500*time.Millisecond)
	defer cancel()
	p, err := c.Launcher(tool).Start(ctx, hello)
	by, _ := ctx.Deadline()
	least := math.Ceil((time.Until(by) + 2*time.Second).Seconds()) // as time passes
	if err != nil {
		t.Fatal(err)
	}
	finish(t, p)
	var job, plain, pull object
	for _, body := range f.bodies {
		o := object{}
		if err := json.Unmarshal([]byte(body), &o); err != nil {
			t.Fatal(err)
		}
		switch {
		case o["kind"] == "Job":
			job = o
			for _, hidden := range []string{"hunter2", "me:pass", base64.StdEncoding.EncodeToString([]byte("hunter2"))} {
				if strings.Contains(body, hidden) {
					t.Errorf("the Job holds %q", hidden)
				}
			}
		case o["type"] == "Opaque":
			plain = o
		case o["type"] == "kubernetes.io/dockerconfigjson":
			pull = o
		}
	}
	spec := at(t, job, "spec")
	for key, want := range map[string]any{
		"backoffLimit": 0.0, "ttlSecondsAfterFinished": 90.0, "suspend": true, "parallelism": 1.0, "completions": 1.0,
	} {
		if spec[key] != want {
			t.Errorf("spec.%s = %v; want %v", key, spec[key], want)
		}
	}
	if got := spec["activeDeadlineSeconds"].(float64); got < least || got > 32 { // rounded up, and after Orla's own
		t.Errorf("spec.activeDeadlineSeconds = %v; want %v to 32", got, least)
	}
	pod := at(t, spec, "template", "spec")
	for key, want := range map[string]any{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 2.0,
	} {
		if pod[key] != want {
			t.Errorf("pod %s = %v; want %v", key, pod[key], want)
		}
	}
	same(t, "pod's security", pod["securityContext"], `{"runAsNonRoot":true,"runAsUser":65532,"runAsGroup":65532,"fsGroup":65532,"seccompProfile":{"type":"RuntimeDefault"}}`)
	box := pod["containers"].([]any)[0].(object)
	same(t, "container's security", box["securityContext"], `{"runAsNonRoot":true,"privileged":false,"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}`)
	same(t, "resources", box["resources"], `{"limits":{"cpu":"500m","memory":"134217728"},"requests":{"cpu":"500m","memory":"134217728"}}`)
	same(t, "command", box["command"], `["weather"]`)
	same(t, "args, which no variable is put into", box["args"], `["--city","Rome $$(API_KEY) $$5"]`)
	name := at(t, job, "metadata")["name"].(string)
	same(t, "env", box["env"], fmt.Sprintf(`[{"name":"LANG","value":"C.UTF-8"},{"name":"PRICE","value":"$$(HOME)"},{"name":"HOME","value":"/tmp"},`+
		`{"name":"API_KEY","valueFrom":{"secretKeyRef":{"name":%q,"key":"value-0","optional":false}}}]`, name))
	same(t, "volumes", pod["volumes"], `[{"name":"tmp","emptyDir":{"medium":"Memory","sizeLimit":"16Mi"}}]`)
	same(t, "pull secrets", pod["imagePullSecrets"], fmt.Sprintf(`[{"name":%q}]`, name+"-pull"))
	for _, s := range []object{plain, pull} {
		if s["immutable"] != true || at(t, s, "metadata")["ownerReferences"].([]any)[0].(object)["name"] != name {
			t.Errorf("the Secret is changeable, or has no owner: %v", s)
		}
	}
	raw, _ := base64.StdEncoding.DecodeString(at(t, pull, "data")[".dockerconfigjson"].(string))
	same(t, "Docker's configuration", decode(t, string(raw)), `{"auths":{"registry.example:5000":{"auth":"`+base64.StdEncoding.EncodeToString([]byte("me:pass"))+`"}}}`)
	labels := at(t, spec, "template", "metadata", "labels")
	if labels["app.kubernetes.io/managed-by"] != "orla" || labels["orla.dev/tool"] != "Weather_Report" || labels["orla.dev/network"] != "none" {
		t.Errorf("labels: %v", labels)
	}
}

// at goes down into an object.
func at(t *testing.T, o object, keys ...string) object {
	t.Helper()
	for _, key := range keys {
		next, ok := o[key].(object)
		if !ok {
			t.Fatalf("there is no %s in %v", key, o)
		}
		o = next
	}
	return o
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// same compares JSON.
func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(decode(t, want))
	if string(a) != string(b) {
		t.Errorf("%s:\n got %s\nwant %s", what, a, b)
	}
}

// SPEC-TOOLS 7.4: how a process ended is known, and so is what ended it.
func TestT74Ends(t *testing.T) {
	t.Parallel()
	again := true
	for name, c := range map[string]struct {
		part part
		want launch.Exit
		code fault.Code
		text string
	}{
		"exit code":          {part{code: 3}, launch.Exit{Code: 3}, "", ""},
		"out of memory":      {part{code: 137, reason: "OOMKilled"}, launch.Exit{Code: 137, OutOfMemory: true}, "", ""},
		"no such command":    {part{code: 128, reason: "StartError", message: `exec: "weather": executable file not found in $PATH`}, launch.Exit{}, fault.UnsupportedTool, "not found in $PATH"},
		"evicted":            {part{code: 137, pod: [2]string{"Evicted", "The node was low on resource: memory."}}, launch.Exit{}, fault.ExecutionFailed, "low on resource"},
		"deadline of a pod":  {part{code: 137, pod: [2]string{"DeadlineExceeded", "Pod was active too long"}}, launch.Exit{}, fault.Timeout, "DeadlineExceeded"},
		"node lost":          {part{code: 137, reason: "ContainerStatusUnknown", message: "The container could not be located"}, launch.Exit{}, fault.ExecutionFailed, "could not be located"},
		"deleted by others":  {part{deleted: true}, launch.Exit{}, fault.ExecutionFailed, "not Orla who deleted it"},
		"deadline of a Job":  {part{deadline: true}, launch.Exit{}, fault.Timeout, "deadline"},
		"the node shut down": {part{code: 137, pod: [2]string{"Terminated", "Pod was terminated in response to imminent node shutdown."}}, launch.Exit{}, fault.ExecutionFailed, "node shutdown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.will(c.part)
			_, exit := run(t, open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather), hello)
			if c.code == "" {
				if exit != c.want {
					t.Errorf("%+v; want %+v", exit, c.want)
				}
				return
			}
			err, ok := errors.AsType[*fault.Error](exit.Err)
			if !ok || err.Code != c.code || !strings.Contains(err.Reason, c.text) {
				t.Errorf("%v; want %s with %q", exit.Err, c.code, c.text)
			}
			if name == "node lost" && (err.Retry == nil || *err.Retry != again) {
				t.Error("another node is not tried")
			}
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// SPEC-TOOLS 7.4: what will not start is told at once, with the cluster's reason.
func TestT74WhatDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		part part
		code fault.Code
		text string
	}{
		"no such image": {part{waiting: [2]string{"ErrImagePull", "manifest unknown"}}, fault.IsolationUnavailable, "ErrImagePull): manifest unknown"},
		"back-off":      {part{waiting: [2]string{"ImagePullBackOff", "Back-off"}}, fault.IsolationUnavailable, "cannot be pulled"},
		"no image name": {part{waiting: [2]string{"InvalidImageName", "couldn't parse"}}, fault.RuntimePolicyInvalid, "the image's name is not valid"},
		"configuration": {part{waiting: [2]string{"CreateContainerConfigError", `secret "x" not found`}}, fault.IsolationUnavailable, "CreateContainerConfigError"},
		"a webhook": {part{change: func(pod object) {
			pod["spec"].(object)["containers"].([]any)[0].(object)["securityContext"].(object)["privileged"] = true
		}}, fault.IsolationUnavailable, "it is privileged"},
		"less memory bound": {part{change: func(pod object) {
			delete(pod["spec"].(object)["containers"].([]any)[0].(object), "resources")
		}}, fault.IsolationUnavailable, "memory is not bounded"},
		"a token": {part{change: func(pod object) { delete(pod["spec"].(object), "automountServiceAccountToken") }}, fault.IsolationUnavailable, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.will(c.part)
			cluster := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
			err := startErr(t, cluster.Launcher(weather), patience)
			if err.Code != c.code || !strings.Contains(err.Reason, c.text) {
				t.Errorf("%v; want %s with %q", err, c.code, c.text)
			}
			cluster.Close()
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// SPEC-TOOLS 7.4: a Job that waits is waited for until the deadline, which says what for.
func TestT74WaitsUntilTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		part part
		text string
	}{
		"unschedulable": {part{pending: "0/3 nodes are available: 3 Insufficient memory."}, "Insufficient memory"},
		"no pod":        {part{noPod: `pods "x" is forbidden: exceeded quota`}, "exceeded quota"}, // once: it may be an accident
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.will(c.part)
			cluster := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
			err := startErr(t, cluster.Launcher(weather), 20*time.Second)
			if err.Code != fault.Timeout || !strings.Contains(err.Reason, c.text) {
				t.Errorf("%v; want timeout with %q", err, c.text)
			}
			cluster.Close()
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// SPEC-TOOLS 7.4: a pod that the cluster refuses, again and again, is not waited
// for until the deadline: the call is told why, and by what code.
func TestT74ARefusedPodIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message string
		retry   bool
	}{
		"LimitRange":  {`Error creating: pods "x" is forbidden: minimum memory usage per Container is 256Mi, but limit is 64Mi`, false},
		"quota":       {`Error creating: pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2`, true},
		"PodSecurity": {`Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest"`, false},
		"a webhook":   {`Error creating: admission webhook "guard.example" denied the request: not today`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.will(part{noPod: c.message, refusals: 2})
			cluster := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
			err := startErr(t, cluster.Launcher(weather), 20*time.Second)
			if err.Code != fault.IsolationUnavailable || !strings.Contains(err.Reason, c.message) || err.Retryable() != c.retry {
				t.Errorf("%v, retryable %v; want isolation_unavailable, retryable %v, with %q", err, err.Retryable(), c.retry, c.message)
			}
			cluster.Close()
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// SPEC-TOOLS 7.4, 6: a call's answer waits for nothing of the cluster when its time
// is over, nor does Orla's stop for a cluster that does not answer any more.
func TestT74TheEndWaitsForNoCluster(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.will(part{forever: true, log: "so far\n"})
	cluster := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
	p, err := cluster.Launcher(weather).Start(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := p.Streams()
	if _, err := io.ReadFull(stdout, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	f.fail(func(asked string, _ int) *refusal {
		if asked == "delete jobs" {
			return &refusal{wait: time.Hour, status: 500} // until the end of the test
		}
		return nil
	})
	p.Stop()
	select {
	case <-p.Exited():
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if fault.From(p.Exit().Err) == nil || !strings.Contains(fault.From(p.Exit().Err).Reason, "before its container had ended") {
		t.Errorf("it ended by %+v", p.Exit())
	}
	if isDone(p.Gone()) {
		t.Error("it is gone while the Job is there")
	}
	testkit.Eventually(t, "it comes to that", func() bool { return f.sees()["delete jobs"] > 0 })
	cluster.Close()
	if n := f.sees()["delete jobs"]; n != 1 {
		t.Errorf("the cluster was asked %d times to delete the Job; want once", n) // a further time comes after 10 s
	}
	if !isDone(p.Gone()) {
		t.Error("it is not gone after Close")
	}
	_ = stdout.Close()
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// SPEC-TOOLS 7.4: what is stopped is deleted, and nobody waits for its end.
func TestT74Stop(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]part{"it ends": {forever: true, log: "so far\n"}, "it is deaf": {forever: true, deaf: true, log: "so far\n"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.will(part)
			p, err := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather).Start(t.Context(), hello)
			if err != nil {
				t.Fatal(err)
			}
			_, stdout, _ := p.Streams()
			if _, err := io.ReadFull(stdout, make([]byte, 7)); err != nil {
				t.Fatal(err)
			}
			p.Stop()
			p.Kill()
			if _, exit := finish(t, p); exit.Err == nil { // the container's own exit would have to be waited for
				t.Errorf("%+v", exit)
			}
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// SPEC-TOOLS 7.4: a cluster has bad moments, which no call sees.
func TestT74BadMoments(t *testing.T) {
	t.Parallel()
	soon := map[string][]string{"Retry-After": {"1"}}
	first := func(what string, r refusal) func(string, int) *refusal {
		return func(asked string, n int) *refusal {
			if asked == what && n == 0 {
				return &r
			}
			return nil
		}
	}
	for name, plan := range map[string]func(string, int) *refusal{
		"500 for a Job":                   first("create jobs", refusal{status: 500}),
		"429 with Retry-After":            first("create jobs", refusal{status: 429, header: soon}),
		"429 for a patch":                 first("patch jobs", refusal{status: 429}),
		"the answer gets lost":            first("create jobs", refusal{after: true, drop: true}),
		"and that of a Secret":            first("create secrets", refusal{after: true, status: 500}),
		"503 for the pods":                first("list pods", refusal{status: 503}),
		"410 for a watch":                 first("watch pods", refusal{cut: -1}),
		"410 at once":                     first("watch pods", refusal{status: 410}),
		"a watch that breaks":             first("watch pods", refusal{cut: 1}),
		"a watch that is dropped":         first("watch pods", refusal{drop: true}),
		"no log yet":                      first("get pods/log", refusal{status: 400}),
		"500 at the end":                  first("delete jobs", refusal{status: 500}),
		"the end's answer gets lost":      first("delete jobs", refusal{after: true, drop: true}),
		"the Secret is kept for a moment": first("delete secrets", refusal{status: 503}),
		"the log's connection breaks":     first("get pods/log", refusal{drop: true}),
		"the policies are late":           first("list networkpolicies", refusal{status: 504}),
		"somebody else makes the policy":  first("create networkpolicies", refusal{after: true, status: 500}),
		"a watch that may not be had at all": func(asked string, _ int) *refusal {
			if asked == "watch pods" {
				return &refusal{status: 403}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.will(part{log: "sunny\n", code: 4})
			f.fail(plan)
			out, exit := run(t, open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather), hello)
			if out != "sunny\n" || exit != (launch.Exit{Code: 4}) {
				t.Errorf("%q, %+v", out, exit)
			}
			if left := f.left("jobs", "secrets"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if f.replicas != 1 {
				t.Errorf("%d pods", f.replicas)
			}
		})
	}
}

// SPEC-TOOLS 7.4: a log that breaks is taken up where it was.
func TestT74LogIsWhole(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	text := strings.Repeat("0123456789abcdef\n", 40_000) // more than a pipe holds
	f.will(part{log: text, logDrop: len(text) / 3})
	out, exit := run(t, open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather), hello)
	if out != text || exit != (launch.Exit{}) {
		t.Errorf("%d bytes of %d, %+v", len(out), len(text), exit)
	}
}

// SPEC-TOOLS 7.4: an output that cannot be read is not taken for an empty one.
func TestT74LogIsLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.will(part{log: "sunny\n"})
	f.fail(func(asked string, _ int) *refusal {
		if asked == "get pods/log" {
			return &refusal{status: 500}
		}
		return nil
	})
	if _, exit := run(t, open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather), hello); fault.CodeOf(exit.Err) != fault.ExecutionFailed {
		t.Errorf("%+v", exit)
	}
}

// A reader that left does not keep a process from ending.
func TestT74NobodyReads(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.will(part{log: strings.Repeat("0123456789abcdef\n", 40_000)})
	p, err := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather).Start(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := p.Streams()
	_, _ = stdout.Close(), stderr.Close()
	select {
	case <-p.Gone():
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
