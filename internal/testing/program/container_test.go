package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// inContainer writes a package whose processes live in containers.
func inContainer(t *testing.T, tools, name, mode, isolation, code string) {
	t.Helper()
	dir := filepath.Join(tools, name)
	testkit.WriteTool(t, dir, "run.sh", "#!/bin/sh\n"+code)
	testkit.WriteTool(t, dir, "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: a test\nentrypoint: run.sh\nruntime:\n  mode: "+mode+"\n  isolation_mode: "+isolation+"\n  image: "+containertest.Image+"\n")
}

// echoing is a capsule in the image's shell.
const echoing = `printf '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"echoing","version":"1.0.0","capabilities":[]}}\n'
while read -r line; do
	id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
	[ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"uid %s in %s"}]}}\n' "$id" "$(id -u)" "$$"
done
`

// enginesTurn is held by the test that uses the engine: some look at all that it has.
var enginesTurn sync.Mutex

// podmanOf returns the engine of these tests, which is the test's own until it is over.
func podmanOf(t *testing.T) *containertest.Engine {
	t.Helper()
	podman := containertest.Podman(t)
	enginesTurn.Lock()
	t.Cleanup(enginesTurn.Unlock)
	return podman
}

func serveContained(t *testing.T, podman *containertest.Engine, tools string) *running {
	t.Helper()
	for dir := tools; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // for the containers' user
			t.Fatal(err)
		}
	}
	prepare := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, podman.Environ...) }
	// Not checkedBinary: only a static Orla looks into containers.
	o := startPrepared(t, t.TempDir(), prepare, orlaBinary(t), "--tools-dir", tools, "--port", "0", "--tool-container-engine", "podman")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

// SPEC-TOOLS 7.2, 7.3, 7.6: simple tools and capsules of the whole program live in
// containers of their own; nothing is left by an Orla that stops, nor runs on
// after one that is killed, nor is there after the next has started.
func TestT73WholeProgram(t *testing.T) {
	t.Parallel()
	podman := podmanOf(t)
	tools := t.TempDir()
	inContainer(t, tools, "once", "simple", "sandboxed", `id -u; cat; touch /open/x 2>&1; env | grep -c ORLA_CALL_ID; exit 0`)
	inContainer(t, tools, "echoing", "capsule", "container", echoing)
	ours := func() (names []string) {
		for _, tool := range []string{"echoing", "once"} { // of two labels podman wants both
			names = append(names, strings.Fields(podman.Run(t, "ps", "--all", "--format={{.Names}}", "--filter=label=orla.tool="+tool))...)
		}
		return names
	}

	o := serveContained(t, podman, tools)
	if got, want := o.mustCall("once"), "65532\n{}touch: /open/x: Read-only file system\n1\n"; got != want {
		t.Errorf("once: %q; want %q", got, want)
	}
	if got := o.mustCall("echoing"); !strings.HasPrefix(got, "uid 65532 in ") {
		t.Errorf("echoing: %q", got)
	}
	held := podman.Run(t, "ps", "--filter=label=orla.tool=echoing", "--format={{.Names}}")
	if held == "" {
		t.Fatal("there is no container of the capsule")
	}
	o.signal(syscall.SIGKILL)
	o.wait()
	// Who outlives Orla ends what runs in its containers, where it can reach that.
	testkit.Eventually(t, "nothing runs", func() bool {
		return podman.Run(t, "ps", "--filter=status=running", "--filter=label=orla.tool=echoing", "--format={{.Names}}") == ""
	})

	o = serveContained(t, podman, tools)
	o.waitLog("removed a container that an earlier Orla left", func(l map[string]any) bool { return l["container"] == held })
	if got := o.mustCall("echoing"); !strings.HasPrefix(got, "uid 65532 in ") {
		t.Errorf("echoing: %q", got)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("it exits with %d", code)
	}
	if left := ours(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
