package capsule

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 7.6: an isolated capsule is started with nothing of Orla's own, sees
// its folder, and has the limits of its manifest.
func TestT76AnIsolatedCapsulesProcess(t *testing.T) {
	tool := manifest.Tool{
		Name: "c", Version: "1.0.0", Kind: manifest.Capsule, Path: "/pack/main.py", Dir: "/pack",
		Interpreter: manifest.Interpreter{Name: "no-python-of-this-machine", Args: []string{"-u"}},
		Run: manifest.Run{
			Env: map[string]string{"A": "1"}, Args: []string{"x"},
			SecretEnv: []manifest.SecretEnv{{Name: "A", Secret: secret.Ref{Name: "k"}}},
		},
		Isolation: manifest.Isolation{
			Mode: manifest.IsolationContainer, Resources: manifest.Resources{Memory: 1 << 20, CPUs: 0.5, Pids: 7},
			Terms: manifest.Terms{Backend: manifest.BackendContainer},
		},
	}
	opts := Options{
		Elsewhere: true, Environ: []string{"PATH=/own/bin", "HOME=/home/ada", "AWS_SECRET=x"}, Log: slog.New(slog.DiscardHandler),
		Secrets: func(secret.Ref) (secret.Value, error) { return secret.NewValue("hunter2"), nil },
	}
	c, err := New(tool, opts)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.spec()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"no-python-of-this-machine", "-u", "/pack/main.py", "x"}; spec.Path != want[0] || !slices.Equal(spec.Argv, want) {
		t.Errorf("it runs %s %q", spec.Path, spec.Argv)
	}
	if want := []string{"HOME=/tmp", "LANG=C.UTF-8", "PWD=/pack", "ORLA_TOOL=c"}; !slices.Equal(spec.Env, want) || !slices.Equal(spec.Secrets, []string{"A=hunter2"}) {
		t.Errorf("its environment is %q and %q", spec.Env, spec.Secrets)
	}
	if !slices.Equal(spec.Expose, []string{"/pack"}) || spec.Dir != "/pack" || spec.Cell != "c" || spec.Limits != (cgroup.Limits{Memory: 1 << 20, CPUs: 0.5, Pids: 7}) {
		t.Errorf("it sees %q, in %s, with %+v", spec.Expose, spec.Dir, spec.Limits)
	}
	tool.Isolation.Terms.Backend = manifest.BackendNative
	if c, err = New(tool, opts); err != nil {
		t.Fatal(err)
	}
	if spec, err = c.spec(); err != nil || !slices.ContainsFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=/usr/local/sbin:") }) {
		t.Errorf("natively its environment is %q, %v", spec.Env, err)
	}
}

// SPEC-TOOLS 7.6: of the folder of its file an isolated McpServer sees what its
// command and its arguments name, and no secrets that lie beside it.
func TestT76WhatAnIsolatedServerSees(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server.py", "secrets.yaml", "data/x", "outside"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "leaves")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		args []string
		want []string // below dir
		in   string   // where it begins
	}{
		{"python3", []string{"-u", "server.py", "./data/"}, []string{"server.py", "data"}, dir},
		{filepath.Join(dir, "server.py"), []string{"server.py", "--x", filepath.Join(dir, "data/x")}, []string{"server.py", "data/x"}, dir},
		{"npx", []string{"-y", "@scope/name", "../x", "/etc/passwd", "leaves", "leaves/passwd", "absent", ""}, nil, "/tmp"},
	} {
		tool := manifest.Tool{
			Name: "s", Kind: manifest.Capsule, Path: test.path, Dir: dir, Run: manifest.Run{Args: test.args},
			Isolation: manifest.Isolation{Mode: manifest.IsolationSandboxed}, Runtime: manifest.Runtime{Generated: true},
		}
		c, err := New(tool, Options{Elsewhere: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		spec, err := c.spec()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range test.want {
			want = append(want, filepath.Join(dir, name))
		}
		if !slices.Equal(spec.Expose, want) || spec.Dir != test.in {
			t.Errorf("%q: it sees %q, from %s", test.args, spec.Expose, spec.Dir)
		}
	}
}

// SPEC-TOOLS 4, 7.6: what has no place says so: to calls by isolation_unavailable,
// in its state by the reason. It is given up after as many failures as any other,
// and can be started when there is a place.
func TestT76ACapsuleWithoutAPlace(t *testing.T) {
	var there atomic.Bool
	few := func(rt *manifest.Runtime) { rt.Restart.MaxFailures = 3 }
	inBubble(t, well, few, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
		until(c, func(s *status) bool { return s.state == Ready }) // Serve reads what is replaced here
		c.connect = through(c, func(ctx context.Context, spec launch.Spec) (stdio.Process, error) {
			if !there.Load() {
				return nil, fault.New(fault.IsolationUnavailable, "there is no container engine here; install podman")
			}
			return w.start(ctx, spec)
		})
		ok(t, c.Stop)
		faulty(t, c.Start(t.Context()), fault.IsolationUnavailable, "walker is CRASHED", "install podman")
		_, err := c.Call(t.Context(), peer.Call{Tool: "walker", Args: json.RawMessage(`{}`)})
		faulty(t, err, fault.IsolationUnavailable, "install podman")
		if f := fault.From(err); !f.Unsent || f.Retryable() {
			t.Errorf("got %+v", f)
		}
		time.Sleep(time.Hour)
		if life := c.Life(); life.State != "STOPPED" || life.Failures != 3 || !strings.Contains(life.Reason, "install podman") {
			t.Errorf("it is %+v", life)
		}
		_, err = c.Call(t.Context(), peer.Call{Tool: "walker", Args: json.RawMessage(`{}`)})
		faulty(t, err, fault.IsolationUnavailable, "orla start walker")
		there.Store(true)
		ok(t, c.Start)
		if life := c.Life(); life.State != "READY" || life.Failures != 0 {
			t.Errorf("it is %+v", life)
		}
	})
}
