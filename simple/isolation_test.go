package simple_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// noPlace keeps what it is asked to start, and starts nothing.
type noPlace struct{ asked []launch.Spec }

func (n *noPlace) Start(_ context.Context, spec launch.Spec) (launch.Process, error) {
	n.asked = append(n.asked, spec)
	return nil, fault.New(fault.IsolationUnavailable, "there is no container engine here; install podman")
}

// askedFor is what a call of a tool has a Launcher elsewhere start.
func askedFor(t *testing.T, tool manifest.Tool, args string) launch.Spec {
	t.Helper()
	place := &noPlace{}
	c, err := simple.New(tool, simple.Options{
		Launcher: place, Elsewhere: true, Environ: []string{"PATH=/own/bin", "HOME=/home/ada", "AWS_SECRET=x"},
		Secrets: func(secret.Ref) (secret.Value, error) { return secret.NewValue("hunter2"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		ctx := trace.With(callid.With(t.Context(), id), trace.Of([16]byte{1}, [8]byte{2}, 1, ""))
		_, err = c.Call(ctx, peer.Call{Tool: "tool", Args: json.RawMessage(args)})
		f := faultOf(t, err, fault.IsolationUnavailable)
		if !f.Unsent || f.Retryable() || !strings.Contains(f.Reason, "install podman") {
			t.Errorf("got %+v", f)
		}
	}
	one, two := place.asked[0], place.asked[1]
	if one.Cell == two.Cell || one.ID == two.ID || !one.Whole {
		t.Errorf("two calls have the cells %q and %q, whole %v", one.Cell, two.Cell, one.Whole)
	}
	return one
}

var heldInContainer = manifest.Isolation{
	Mode: manifest.IsolationContainer, Resources: manifest.Resources{Memory: 1 << 20, CPUs: 0.5, Pids: 7},
	Terms: manifest.Terms{Backend: manifest.BackendContainer},
}

// SPEC-TOOLS 7.6: an isolated simple tool sees its file, or its package, and has
// its limits for each call; nothing of Orla's own is in its environment.
func TestT76AnIsolatedSimpleTool(t *testing.T) {
	tool := manifest.Tool{
		Name: "tool", Kind: manifest.Simple, Path: "/tools/deep/run.py", Dir: "/tools", InputSchema: json.RawMessage(`{"type":"object"}`),
		Interpreter: manifest.Interpreter{Name: "python3", Path: "/opt/python/bin/python3", Args: []string{"-u"}},
		Run:         manifest.Run{Env: map[string]string{"A": "1"}, Args: []string{"x"}},
		Isolation:   heldInContainer,
	}
	spec := askedFor(t, tool, `{"n":1}`)
	if want := []string{"/opt/python/bin/python3", "-u", "/tools/deep/run.py", "x", "--n", "1"}; spec.Path != want[0] || !slices.Equal(spec.Argv, want) {
		t.Errorf("it runs %s %q", spec.Path, spec.Argv)
	}
	want := []string{"HOME=/tmp", "LANG=C.UTF-8", "PWD=/tmp", "ORLA_TOOL=tool", "A=1", "TRACEPARENT=00-01000000000000000000000000000000-0200000000000000-01", "ORLA_CALL_ID=one"}
	if !slices.Equal(spec.Env, want) {
		t.Errorf("its environment is %q", spec.Env)
	}
	if !slices.Equal(spec.Expose, []string{"/tools/deep/run.py"}) || spec.Dir != "/tmp" || spec.Limits != (cgroup.Limits{Memory: 1 << 20, CPUs: 0.5, Pids: 7}) {
		t.Errorf("it sees %q, in %s, with %+v", spec.Expose, spec.Dir, spec.Limits)
	}
	tool.Version, tool.Dir = "1.0.0", "/tools/deep" // a package
	if spec = askedFor(t, tool, `{}`); !slices.Equal(spec.Expose, []string{"/tools/deep"}) || spec.Dir != "/tools/deep" {
		t.Errorf("a package sees %q, in %s", spec.Expose, spec.Dir)
	}
}

// SPEC-TOOLS 3.6, 7: an isolated command is looked for where it runs, sees nothing
// of this machine that its file does not name, and has its secrets apart.
func TestT36AnIsolatedCommand(t *testing.T) {
	tool := cliTool(t, "", []string{"get", "{{.q}}"}, func(t *manifest.Tool) {
		t.Resource.CLI.Command, t.Path = "kubectl", ""
		t.Run.Env = map[string]string{"A": "1"}
		t.Run.SecretEnv = []manifest.SecretEnv{{Name: "TOKEN", Secret: secret.Ref{Name: "k"}}}
		t.Isolation = heldInContainer
	})
	spec := askedFor(t, tool, `{"q":"pods"}`)
	if spec.Path != "kubectl" || !slices.Equal(spec.Argv, []string{"kubectl", "get", "pods"}) || len(spec.Expose) > 0 || spec.Dir != "/tmp" || string(spec.Input) != "" || spec.Input == nil {
		t.Errorf("it runs %s %q, sees %q, in %s", spec.Path, spec.Argv, spec.Expose, spec.Dir)
	}
	if !slices.Equal(spec.Env, []string{"HOME=/tmp", "LANG=C.UTF-8", "A=1"}) || !slices.Equal(spec.Secrets, []string{"TOKEN=hunter2"}) {
		t.Errorf("its environment is %q and %q", spec.Env, spec.Secrets)
	}
	if strings.Contains(fmt.Sprint(spec.Argv, spec.Env, spec.Path, spec.Dir), "hunter2") {
		t.Error("the secret is where others see it")
	}
	tool.Resource.CLI.WorkingDir = "/srv/of/the/image"
	if spec = askedFor(t, tool, `{}`); spec.Dir != "/srv/of/the/image" || len(spec.Expose) > 0 {
		t.Errorf("in %s it sees %q", spec.Dir, spec.Expose)
	}
	local := cliTool(t, "", nil, func(t *manifest.Tool) {
		t.Isolation = manifest.Isolation{Mode: manifest.IsolationSandboxed, Terms: manifest.Terms{Backend: manifest.BackendNative}}
	})
	data := filepath.Join(local.Dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string][]string{
		local.Dir: {local.Path}, // others' tools are there
		data:      {local.Path, data},
	} {
		local.Resource.CLI.WorkingDir = dir
		if spec = askedFor(t, local, `{}`); spec.Path != local.Path || spec.Dir != dir || !slices.Equal(spec.Expose, want) {
			t.Errorf("a command of the folder runs %s in %s and sees %q", spec.Path, spec.Dir, spec.Expose)
		}
	}
}
