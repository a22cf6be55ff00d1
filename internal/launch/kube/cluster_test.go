package kube_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC-TOOLS 7.4: a cluster that cannot be had is isolation_unavailable, with the way to have it.
func TestT74Unavailable(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv("KUBECONFIG", empty)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	denied := func(what string) func(string, int) *refusal {
		return func(asked string, _ int) *refusal {
			if asked != what {
				return nil
			}
			return &refusal{status: 403, body: status(403, "Forbidden", "forbidden: User \"orla\" cannot do it")}
		}
	}
	closed := newFake(t)
	closed.Close()
	f := newFake(t)
	unknown := strings.Replace(read(t, f.kubeconfig(t)), token, "other", 1)
	broken := strings.Replace(read(t, f.kubeconfig(t)), "users:", "users: {", 1)
	for name, c := range map[string]struct {
		kubeconfig, context string
		fault               func(string, int) *refusal
		text                string
	}{
		"no kubeconfig":   {"", "", nil, "no cluster is configured"},
		"no such file":    {filepath.Join(t.TempDir(), "none"), "", nil, "no such file"},
		"no such context": {f.kubeconfig(t), "other", nil, `"other"`},
		"no YAML":         {write(t, broken), "", nil, "not valid YAML"},
		"unreachable":     {closed.kubeconfig(t), "", nil, "cannot be reached"},
		"who are you":     {write(t, unknown), "", nil, "401"},
		"may not":         {f.kubeconfig(t), "", denied("create jobs"), "may not create jobs.batch in namespace tools"},
		"may not list":    {f.kubeconfig(t), "", denied("list pods"), "may not list pods in namespace tools"},
		"no policies":     {f.kubeconfig(t), "", denied("list networkpolicies"), "may not list networkpolicies.networking.k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			f.fail(c.fault)
			err := startErr(t, open(t, kube.Options{Kubeconfig: c.kubeconfig, Context: c.context}).Launcher(weather), patience)
			if err.Code != fault.IsolationUnavailable || !strings.Contains(err.Reason, c.text) {
				t.Errorf("%v; want isolation_unavailable with %q", err, c.text)
			}
			if strings.Contains(err.Error(), token) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SPEC-TOOLS 7.4, 7.6: a Job serves calls without stdin, by what its image has.
func TestT74RefusesWhatAJobCannotDo(t *testing.T) {
	l := open(t, kube.Options{Kubeconfig: "/nonexistent"}).Launcher(weather)
	for name, change := range map[string]func(*launch.Spec){
		"its files":  func(s *launch.Spec) { s.Input, s.Expose = nil, []string{"/srv/tool"} },
		"stdin":      func(s *launch.Spec) { s.Input = []byte("{}") },
		"files":      func(s *launch.Spec) { s.Expose = []string{"/srv/tool"} },
		"no command": func(s *launch.Spec) { s.Argv = nil },
	} {
		spec := hello
		change(&spec)
		if _, err := l.Start(t.Context(), spec); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPEC-TOOLS 1.2, 7.4: network none is a policy of the cluster's that no other undoes.
func TestT74NoNetwork(t *testing.T) {
	f := newFake(t)
	l := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(weather)
	run(t, l, hello)
	run(t, l, hello)
	if n := f.sees()["create networkpolicies"]; n != 1 {
		t.Errorf("%d policies were made", n)
	}
	var made object
	for _, o := range f.objects {
		if o["kind"] == "NetworkPolicy" {
			made = o
		}
	}
	same(t, "policy", made["spec"], `{"podSelector":{"matchLabels":{"orla.dev/network":"none"}},"policyTypes":["Ingress","Egress"]}`)

	f.mu.Lock()
	f.objects["networkpolicies/open"] = object{"metadata": object{"name": "open"}, "spec": object{
		"podSelector": object{"matchExpressions": []any{object{"key": "orla.dev/tool", "operator": "Exists"}}}, "egress": []any{object{}}, "policyTypes": []any{"Egress"},
	}}
	f.mu.Unlock()
	if err := startErr(t, l, patience); err.Code != fault.IsolationUnavailable || !strings.Contains(err.Reason, "NetworkPolicy open of namespace tools") {
		t.Errorf("%v", err)
	}
	reached := weather
	reached.Network = kube.ClusterNetwork
	before := f.sees()["list networkpolicies"]
	if _, exit := run(t, open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Launcher(reached), hello); exit.Err != nil {
		t.Error(exit.Err)
	}
	if f.sees()["list networkpolicies"] != before {
		t.Error("policies are looked at for a tool that has the cluster's network")
	}
}

// SPEC-TOOLS 7.4: what an Orla left that is gone is removed, and nobody else's.
func TestT74Sweep(t *testing.T) {
	f := newFake(t)
	kubeconfig := f.kubeconfig(t)
	f.will(part{forever: true})
	live := open(t, kube.Options{Kubeconfig: kubeconfig, Instance: "/tools"})
	p, err := live.Launcher(weather).Start(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	var mine object
	for key, o := range f.objects {
		if strings.HasPrefix(key, "jobs/") {
			mine = o
		}
	}
	add := func(name, life, instance, suspended string) {
		o := clone(mine)
		meta := o["metadata"].(object)
		meta["name"] = name
		labels := meta["labels"].(object)
		labels["orla.dev/life"] = life
		if instance != "" {
			labels["orla.dev/instance"] = instance
		}
		if suspended != "" {
			o["spec"].(object)["suspend"], meta["creationTimestamp"] = true, suspended
		}
		f.objects["jobs/"+name] = o
	}
	add("dead", "4194304-abc", "", "")             // beyond what a pid can be
	add("elsewhere", "4194304-abc", "0123456", "") // another machine, or another folder
	add("same-pid", fmt.Sprintf("%d-abc", os.Getpid()), "", "")
	add("running", fmt.Sprintf("%d-abc", os.Getppid()), "", "")
	add("forgotten", "1-x", "0123456", "2020-01-01T00:00:00Z")
	add("foreign", "", "0123456", "2020-01-01T00:00:00Z") // of somebody else whose name is orla
	f.mu.Unlock()
	c := open(t, kube.Options{Kubeconfig: kubeconfig, Instance: "/tools"})
	c.Sweep()
	testkit.Eventually(t, "it comes to that", func() bool { return len(f.left("jobs")) == 4 })
	left := f.left("jobs")
	slices.Sort(left)
	mineName := "jobs/" + at(t, mine, "metadata")["name"].(string)
	if want := []string{"jobs/elsewhere", "jobs/foreign", mineName, "jobs/running"}; !slices.Equal(left, want) {
		t.Errorf("left: %q; want %q", left, want)
	}
	p.Stop()
	finish(t, p)
}

// SPEC-TOOLS 7.4: the role of deploy/kubernetes grants what Orla asks for, and
// nothing else; and Check sees what of it is missing.
func TestT74Role(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)})
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	var rights []string
	for _, right := range kube.Rights() {
		rights = append(rights, right.Verb+" "+right.Resource)
	}
	slices.Sort(rights)
	if granted := slices.Sorted(maps.Keys(f.granted)); !slices.Equal(granted, rights) {
		t.Errorf("granted: %q; want %q", granted, rights)
	}
	// A call, one that is deleted by others, one without a pod, and a sweep use all of it.
	c.Sweep()
	f.will(part{log: "sunny\n"})
	run(t, c.Launcher(weather), hello)
	f.will(part{deadline: true})
	run(t, c.Launcher(weather), hello)
	f.will(part{noPod: "exceeded quota"})
	ctx, cancel := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	starting.Go(func() {
		if _, err := c.Launcher(weather).Start(ctx, hello); fault.CodeOf(err) != fault.Canceled {
			t.Errorf("%v; want canceled", err)
		}
	})
	testkit.Eventually(t, "it comes to that", func() bool { return f.sees()["list events"] > 0 })
	cancel()
	starting.Wait()
	c.Close()
	var used []string
	for what := range f.sees() {
		used = append(used, what)
	}
	// TestP3ProcessesOfCapsulesArePods uses the others.
	used = append(used, "create pods", "get pods", "patch pods", "delete pods", "get pods/attach", "create pods/attach")
	slices.Sort(used)
	if !slices.Equal(used, rights) {
		t.Errorf("used: %q; granted: %q", used, rights)
	}
	delete(f.granted, "create secrets")
	delete(f.granted, "get pods/log")
	err := open(t, kube.Options{Kubeconfig: f.kubeconfig(t)}).Check(t.Context())
	if fault.CodeOf(err) != fault.IsolationUnavailable || !strings.Contains(err.Error(), "may not get pods/log, create secrets in namespace tools") {
		t.Errorf("%v", err)
	}
}
