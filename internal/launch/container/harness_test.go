package container_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/testing/attack"
	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// patience bounds what has to come: an engine that has much to share takes seconds
// for a command.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	endPackages, err := containertest.WithoutPackages()
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if common != nil {
		common.Close()
		commonLocal.Close()
	}
	containertest.Release()
	endPackages()
	attack.Remove()
	if dir := programDir; dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// usual are the limits of the tests' containers (SPEC-TOOLS 7.2).
var usual = cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64}

// bench is what tests of real containers use.
type bench struct {
	t      testing.TB
	podman *containertest.Engine
	engine *container.Engine
	log    *testkit.Log
}

var (
	commonOnce  sync.Once
	common      *container.Engine // what tests share that need none of their own
	commonLocal *launch.Local
	commonLog   testkit.Log
)

// usualBench returns the engine that tests share, so that each need not find out
// anew what it is.
func usualBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, podman: containertest.Podman(t), log: &commonLog}
	prober := program(t)
	commonOnce.Do(func() {
		log := slog.New(slog.NewTextHandler(&commonLog, nil))
		local, err := launch.NewLocal(launch.Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		commonLocal = local
		common = container.NewEngine(container.EngineOptions{
			Program: b.podman.Program, Local: local, Log: log, Folder: "usual", Environ: b.environ(), Prober: []string{prober, "probe"},
		})
	})
	b.engine = common
	return b
}

// environ is the environment of the engine's command lines.
func (b *bench) environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, b.podman.Environ...)
}

// newBench returns an engine that the test closes at its end. change may be nil.
func newBench(t testing.TB, change func(*container.EngineOptions)) *bench {
	t.Helper()
	b := &bench{t: t, podman: containertest.Podman(t), log: &testkit.Log{}}
	b.engine = b.newEngine(change)
	return b
}

func (b *bench) newEngine(change func(*container.EngineOptions)) *container.Engine {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(io.MultiWriter(b.log, testWriter{b.t}), nil))
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		b.t.Fatal(err)
	}
	opts := container.EngineOptions{
		Program: b.podman.Program, Local: local, Log: log, Folder: b.t.Name(),
		Environ: b.environ(), Prober: []string{program(b.t), "probe"},
	}
	if change != nil {
		change(&opts)
	}
	e := container.NewEngine(opts)
	b.t.Cleanup(func() { e.Close(); local.Close() })
	return e
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// launcher returns one with the usual options. change may be nil.
func (b *bench) launcher(change func(*container.Options)) *container.Launcher {
	opts := container.Options{Engine: b.engine, Tool: "test", Image: containertest.Image, Limits: usual}
	if change != nil {
		change(&opts)
	}
	return container.New(opts)
}

// outcome is what a process left.
type outcome struct {
	stdout, stderr string
	exit           launch.Exit
}

// sh is a command line of the image's shell.
func sh(script string) launch.Spec {
	return launch.Spec{Path: "/bin/sh", Argv: []string{"/bin/sh", "-c", script}, Input: []byte{}}
}

func (b *bench) start(l *container.Launcher, spec launch.Spec) launch.Process {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	p, err := l.Start(ctx, spec)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		p.Kill()
		<-p.Gone()
		in, out, err := p.Streams()
		for _, f := range []*os.File{in, out, err} {
			if f != nil {
				_ = f.Close()
			}
		}
	})
	return p
}

// run runs a process to its end.
func (b *bench) run(l *container.Launcher, spec launch.Spec) outcome {
	b.t.Helper()
	p := b.start(l, spec)
	return b.attend(p)
}

func (b *bench) attend(p launch.Process) outcome {
	b.t.Helper()
	_, stdout, stderr := p.Streams()
	var o outcome
	var streams sync.WaitGroup
	read := func(f *os.File, to *string) {
		streams.Go(func() {
			text, _ := io.ReadAll(f) // until it is torn
			*to = string(text)
		})
	}
	read(stdout, &o.stdout)
	read(stderr, &o.stderr)
	within(b.t, "its end", p.Exited())
	past := time.Now().Add(30 * time.Second) // for what it said last
	_ = stdout.SetReadDeadline(past)
	_ = stderr.SetReadDeadline(past)
	streams.Wait()
	o.exit = p.Exit()
	return o
}

// within waits for a channel to be closed.
func within(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
}

var eventually = testkit.Eventually

func sandboxed(o *container.Options) { o.Sandboxed = true }

var (
	programOnce sync.Once
	programDir  string
	programErr  error
)

// program builds testdata/program, which is static.
func program(t testing.TB) string {
	t.Helper()
	programOnce.Do(func() {
		if programDir, programErr = os.MkdirTemp("", "orla-program-*"); programErr != nil { //nolint:usetesting // it is all tests'
			return
		}
		programErr = os.Chmod(programDir, 0o755)
		build := exec.Command("go", "build", "-o", filepath.Join(programDir, "program"), "./testdata/program")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			programErr = err
		}
	})
	if programErr != nil {
		t.Fatal(programErr)
	}
	return filepath.Join(programDir, "program")
}
