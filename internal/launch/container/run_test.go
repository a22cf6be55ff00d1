package container_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/container"
)

// left lists the containers of the test's tool.
func (b *bench) left() []string {
	b.t.Helper()
	return strings.Fields(b.podman.Run(b.t, "ps", "--all", "--format={{.Names}}", "--filter=label=orla.tool="+b.t.Name()))
}

// ours names the test in labels.
func (b *bench) ours(more ...func(*container.Options)) func(*container.Options) {
	return func(o *container.Options) {
		o.Tool = b.t.Name()
		for _, change := range more {
			change(o)
		}
	}
}

// SPEC-TOOLS 7.3: a process lives in a container of its own. Its streams and its
// exit code are the process's, and nothing of the container is left.
func TestT73Runs(t *testing.T) {
	b := usualBench(t)
	spec := sh(`cat; echo to stderr >&2; id -u; id -g; pwd; exit 42`)
	spec.Input = []byte("hello\n")
	p := b.start(b.launcher(b.ours()), spec)
	o := b.attend(p)
	if o.exit.Code != 42 || o.exit.Err != nil || o.stdout != "hello\n65532\n65532\n/tmp\n" || o.stderr != "to stderr\n" {
		t.Errorf("%+v", o)
	}
	within(t, "the removal", p.Gone())
	if left := b.left(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// SPEC-TOOLS 7.2: limits are read back from where the kernel keeps them.
func TestT72HeldIsWhatTheKernelSays(t *testing.T) {
	b := usualBench(t)
	p := b.start(b.launcher(b.ours()), sh("true"))
	if applied := p.Applied().Tree; applied != usual {
		t.Errorf("applied: %+v; want %+v", applied, usual)
	}
}

// SPEC-TOOLS 7.6: a capsule lives in a container, and ends with its input.
func TestT76ALongLife(t *testing.T) {
	b := usualBench(t)
	dir := filepath.Dir(program(t))
	p := b.start(b.launcher(b.ours()), launch.Spec{Path: program(t), Argv: []string{"program", "echo"}, Dir: dir, Expose: []string{dir}})
	in, out, _ := p.Streams()
	answer := make([]byte, 64)
	for _, word := range []string{"one\n", "two\n", "three\n"} {
		if _, err := in.WriteString(word); err != nil {
			t.Fatal(err)
		}
		n, err := out.Read(answer)
		if err != nil || string(answer[:n]) != word {
			t.Fatalf("%q, %v", answer[:n], err)
		}
	}
	p.Finish(30 * time.Second)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", p.Gone())
	if exit := p.Exit(); exit.Code != 0 || exit.Err != nil {
		t.Errorf("%+v", exit)
	}
}

// SPEC-TOOLS 7.3: what a process sees of this machine it only reads, at the same
// path, whatever that path is called. Of the rest there is nothing.
func TestT73Expose(t *testing.T) {
	b := usualBench(t)
	dir := filepath.Join(t.TempDir(), "with, comma")
	colon := filepath.Join(t.TempDir(), "a:b c")
	for _, d := range []string{dir, colon} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "file"), []byte("seen\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for up := d; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
			if err := os.Chmod(up, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	neighbour := filepath.Join(filepath.Dir(dir), "neighbour")
	if err := os.WriteFile(neighbour, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	spec := sh(`cat file; pwd; touch x; cat "$1/file"; touch "$1/x"; ls "$2"; ls /home`)
	spec.Argv = append(spec.Argv, "sh", colon, neighbour)
	spec.Dir, spec.Expose = dir, []string{dir, colon}
	o := b.run(b.launcher(b.ours()), spec)
	if want := "seen\n" + dir + "\nseen\n"; o.stdout != want {
		t.Errorf("stdout %q; want %q", o.stdout, want)
	}
	if strings.Count(o.stderr, "Read-only file system") != 2 || !strings.Contains(o.stderr, "No such file") {
		t.Errorf("stderr %q", o.stderr)
	}
	spec.Expose = []string{"/both:and,"}
	if _, err := b.launcher(b.ours()).Start(t.Context(), spec); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
		t.Errorf("a path that no engine takes: %v", err)
	}
}

// SPEC-TOOLS 7.3, 5.3: a process has the variables that it is given, whatever is
// in them, and no other; none of their values is on a command line.
func TestT73Variables(t *testing.T) {
	b := newBench(t, func(o *container.EngineOptions) {
		o.Environ = append(o.Environ, "HTTP_PROXY=http://me:orlas-proxy@127.0.0.1:1", "OF_ORLA=orlas-own", "CANARY=orlas-own")
	})
	spec := sh(`echo started; cat >/dev/null; env; printf %s "$LINES_OF_TEXT" | wc -l`)
	spec.Input = nil
	spec.Env = []string{
		"PLAIN=a b=c", "LINES_OF_TEXT=one\ntwo\n", `QUOTED="it's"# not a comment`, "EMPTY=", "CANARY=of the tool",
		"PATH=/bin:/of the tool", "HOME=/home", "TMPDIR=/of/tool", "DOCKER_HOST=tcp://198.51.100.1:1", "LD_PRELOAD=/nowhere.so", "CONTAINERS_CONF=/nowhere", "HTTPS_PROXY=http://tool",
		"ORLA_TOOL=x", "PWD=/wrong",
	}
	spec.Secrets = []string{"PASSWORD=swordfish-in-env"}
	p := b.start(b.launcher(b.ours()), spec)
	_, out, _ := p.Streams()
	word := make([]byte, 64)
	if n, err := out.Read(word); err != nil || string(word[:n]) != "started\n" {
		t.Fatalf("%q, %v", word[:n], err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "swordfish-in-env") {
			t.Errorf("the secret is on the command line %q", text)
		}
	}
	in, _, _ := p.Streams()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	o := b.attend(p)
	got := strings.Split(strings.TrimSpace(o.stdout), "\n")
	for _, want := range []string{
		"PLAIN=a b=c", "LINES_OF_TEXT=one", "two", `QUOTED="it's"# not a comment`, "EMPTY=", "CANARY=of the tool", "PATH=/bin:/of the tool", "HOME=/home",
		"TMPDIR=/of/tool", "DOCKER_HOST=tcp://198.51.100.1:1", "LD_PRELOAD=/nowhere.so", "CONTAINERS_CONF=/nowhere", "HTTPS_PROXY=http://tool", "LANG=C.UTF-8", "PASSWORD=swordfish-in-env", "PWD=/tmp", "2",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if strings.Contains(o.stdout, "orlas-") {
		t.Errorf("what is Orla's own is in %q", o.stdout)
	}
}

// SPEC-TOOLS 7.3: a variable that no engine would pass on as it is, is refused.
func TestT73VariablesThatCannotBeHad(t *testing.T) {
	b := usualBench(t)
	for _, kv := range []string{"LD_PRELOAD=a\nB=c", "PATH='x", "DOCKER_HOST= x", "A*=x", "A B=x", "GODEBUG=a # b"} {
		spec := sh("env")
		spec.Env = []string{kv}
		if _, err := b.launcher(b.ours()).Start(t.Context(), spec); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Errorf("%q: %v", kv, err)
		}
	}
}

// SPEC-TOOLS 7.3: nothing that a tool sets reaches the engine or what that runs, such as iptables, which loads libraries from
// XTABLES_LIBDIR: neither by a name that is known to be read by the engine, nor by another one.
func TestT73VariablesOfToolsDoNotReachTheEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	environ, file, err := container.Variables([]string{
		"XTABLES_LIBDIR=" + dir, "OPENSSL_CONF=" + dir + "/x", "SHELLOPTS=xtrace", "NOBODY_KNOWS=" + dir, `QUOTED="it's"`, "LINES_OF_TEXT=one\ntwo", "URL=https://example.com/?a=$b",
	})
	if want := []string{"LINES_OF_TEXT=one\ntwo", `QUOTED="it's"`, "URL=https://example.com/?a=$b"}; err != nil || !slices.Equal(environ, want) {
		t.Errorf("%q, %v; want %q", environ, err, want)
	}
	for _, line := range []string{"XTABLES_LIBDIR=" + dir + "\n", "SHELLOPTS=xtrace\n", "NOBODY_KNOWS=" + dir + "\n"} {
		if !strings.Contains(file, line) {
			t.Errorf("%q is not in %q", line, file)
		}
	}
	odd := filepath.Join(dir, "it's")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{
		{"XTABLES_LIBDIR=" + odd},
		{"NOBODY_KNOWS=" + odd},
		{"NOBODY_KNOWS=/nowhere:" + odd},
		{"NOBODY_KNOWS=" + odd[1:]},
		{"PS4=$(id)"},
		{"A=" + strings.Repeat("x", 16<<10-100), "NOBODY_KNOWS=" + dir + strings.Repeat("/", 100)},
	} {
		if environ, _, err := container.Variables(env); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Errorf("%.60q: %.60q, %v", env, environ, err)
		}
	}
	servers := []string{"A=redis://:pa$$@db:6379", "B=mysql://root:it's@db", "C=amqp://a:pa$$@db:/"}
	if environ, _, err := container.Variables(servers); err != nil || !slices.Equal(environ, servers) {
		t.Errorf("URLs of servers are taken for paths: %q, %v", environ, err)
	}
	if environ, _, err := container.Variables([]string{"A=" + strings.Repeat("x", 16<<10), "B=" + strings.Repeat("y", 16<<10)}); err != nil || len(environ) != 2 {
		t.Errorf("what is long: %v", err)
	}
}

// SPEC-TOOLS 7.3: what would be read as a flag, or as somebody else's network, is
// refused before an engine sees it.
func TestT73WhatIsRefused(t *testing.T) {
	b := usualBench(t)
	for what, change := range map[string]func(*container.Options){
		"a flag as image":       func(o *container.Options) { o.Image = "--privileged" },
		"two words as image":    func(o *container.Options) { o.Image = "a b" },
		"no image":              func(o *container.Options) { o.Image = "" },
		"the host's network":    func(o *container.Options) { o.Network = "host" },
		"another's network":     func(o *container.Options) { o.Network = "container:other" },
		"a network by its path": func(o *container.Options) { o.Network = "ns:/proc/1/ns/net" },
		"a flag as network":     func(o *container.Options) { o.Network = "-x" },
		"a network in sandbox":  func(o *container.Options) { o.Network, o.Sandboxed = "bridge", true },
		"a shared one in one":   func(o *container.Options) { o.Network, o.Shared, o.Sandboxed = "host", true, true },
		"a user by name":        func(o *container.Options) { o.User = "root" },
		"half a user":           func(o *container.Options) { o.User = "0" },
		"a flag as runtime":     func(o *container.Options) { o.Runtime = "-runc" },
	} {
		if _, err := b.launcher(b.ours(change)).Start(t.Context(), sh("true")); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// SPEC-TOOLS 7.3: it is said what cannot be run where, and an exit code of the
// tool's is not taken for one of the engine's.
func TestT73WhatCannotBeRun(t *testing.T) {
	b := usualBench(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/usr/bin/python9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(script); up != os.TempDir(); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"nonesuch": "nonesuch cannot be run in image localhost/orla-test:1: it is not in PATH, which is /usr/local/sbin",
		script:     "it needs /usr/bin/python9, which is not there",
	} {
		_, err := b.launcher(b.ours()).Start(t.Context(), launch.Spec{Path: path, Expose: []string{script}})
		if f := fault.From(err); f == nil || f.Code != fault.UnsupportedTool || !strings.Contains(f.Reason, want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if b.podman.IsPodman() { // docker makes the folder
		_, err := b.launcher(b.ours()).Start(t.Context(), launch.Spec{Path: "/bin/sh", Dir: "/nonesuch"})
		if f := fault.From(err); f == nil || f.Code != fault.RuntimePolicyInvalid || !strings.Contains(f.Reason, "/nonesuch") {
			t.Errorf("a folder that is not there: %v", err)
		}
	}
	for _, code := range []int{125} {
		if o := b.run(b.launcher(b.ours()), sh(fmt.Sprint("exit ", code))); o.exit.Err != nil || o.exit.Code != code {
			t.Errorf("a tool that exits %d: %+v", code, o.exit)
		}
	}
	_, err := b.launcher(b.ours(func(o *container.Options) { o.Image = "localhost/nonesuch:1" })).Start(t.Context(), sh("true"))
	if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, "localhost/nonesuch:1") {
		t.Errorf("an image that is not to be had: %v", err)
	}
}

// SPEC-TOOLS 7.2: what is killed for its memory is told from what is killed.
func TestT72OutOfMemory(t *testing.T) {
	b := usualBench(t)
	o := b.run(b.launcher(b.ours()), sh(`a=x; while :; do a=$a$a; done`))
	if !o.exit.OutOfMemory || o.exit.Code != 137 {
		t.Errorf("%+v", o.exit)
	}
}

// SPEC-TOOLS 7.3: an image that is removed while Orla knows it is said to be gone,
// and looked for anew.
func TestT73AnImageThatGoes(t *testing.T) {
	b := usualBench(t)
	const name = "localhost/orla-going:1"
	b.podman.Run(t, "tag", "localhost/orla-test:1", name)
	l := b.launcher(b.ours(func(o *container.Options) { o.Image = name }))
	if o := b.run(l, sh("true")); o.exit.Code != 0 || o.exit.Err != nil {
		t.Fatalf("%+v", o)
	}
	b.podman.Run(t, "rmi", name)
	o := b.run(l, sh("true"))
	if f := fault.From(o.exit.Err); f == nil || f.Code != fault.IsolationUnavailable || !f.Retryable() || !strings.Contains(f.Reason, name) {
		t.Errorf("%+v", o.exit)
	}
	if _, err := l.Start(t.Context(), sh("true")); fault.CodeOf(err) != fault.IsolationUnavailable {
		t.Errorf("the next one: %v", err)
	}
}

// SPEC-TOOLS 7.1: without an engine each start says so, and what to do.
func TestT73NoEngine(t *testing.T) {
	b := newBench(t, func(o *container.EngineOptions) { o.Program = "/nonesuch/podman" })
	_, err := b.launcher(nil).Start(t.Context(), sh("true"))
	if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, "install podman") {
		t.Errorf("%v", err)
	}
	b.engine = b.newEngine(func(o *container.EngineOptions) { o.Program = "/bin/true" })
	if _, err := b.launcher(nil).Start(t.Context(), sh("true")); fault.CodeOf(err) != fault.IsolationUnavailable {
		t.Errorf("something that is not an engine: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.engine = b.newEngine(nil)
	if _, err := b.launcher(nil).Start(ctx, sh("true")); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("a call that was given up: %v", err)
	}
}
