package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// installable is the folder of a package that a test writes, and the project that it is installed into.
type installable struct {
	t        *testing.T
	dir, src string
	home     string
}

// shCapsule is a capsule that answers with its version. It needs nothing but a shell.
const shCapsule = `#!/bin/sh
printf '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"say","version":"VERSION","capabilities":[]}}\n'
while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
	case "$line" in
	*'"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"VERSION"}]}}\n' "$id" ;;
	esac
done
`

func newInstallable(t *testing.T) *installable {
	t.Helper()
	needs.Root(t, "the package runs in a native sandbox")
	i := &installable{t: t, dir: t.TempDir(), src: filepath.Join(t.TempDir(), "say"), home: t.TempDir()}
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\nqueue_timeout: 60s\ntimeout: 60s\n")
	return i
}

func (i *installable) write(dir, name, text string) {
	i.t.Helper()
	file := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil { //nolint:gosec // it is run
		i.t.Fatal(err)
	}
}

// version writes a version of the package.
func (i *installable) version(version, run, more string) {
	i.t.Helper()
	i.write(i.src, "tool.yaml", "name: say\nversion: "+version+"\ndescription: it says its version\nentrypoint: run\nmcp: {input_schema: {}}\n"+more)
	i.write(i.src, "run", strings.ReplaceAll(run, "VERSION", version))
}

const aCapsule = "runtime: {mode: capsule, startup_timeout_ms: 20000}\n"

// orla runs a command in the project.
func (i *installable) orla(args ...string) (string, error) {
	i.t.Helper()
	out, err := i.command(args...).CombinedOutput()
	return string(out), err
}

func (i *installable) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(i.t.Context(), orlaBinary(i.t), args...)
	cmd.Dir, cmd.Env = i.dir, append(os.Environ(), "HOME="+i.home)
	return cmd
}

func (i *installable) must(args ...string) string {
	i.t.Helper()
	out, err := i.orla(args...)
	if err != nil {
		i.t.Fatalf("orla %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (i *installable) serve() *running {
	i.t.Helper()
	o := startPrepared(i.t, i.dir, withEnv("HOME="+i.home), orlaBinary(i.t), "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

// SPEC M2, M8; RFC 3 §7.4, §9.1 and §10: a running Orla serves what is installed, an update under load loses no call, one
// that does not become READY is taken back, and what is uninstalled is stopped.
func TestM8UpdatesOfARunningCapsule(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", shCapsule, aCapsule)
	if err := os.Mkdir(filepath.Join(i.dir, "tools"), 0o755); err != nil { //nolint:gosec // it is a project
		t.Fatal(err)
	}
	o := i.serve()
	i.must("install", "--local", i.src)
	o.waitListed("say")
	if got := o.mustCall("say"); got != "1.0.0" {
		t.Fatalf("it says %q", got)
	}
	if s := o.toolStatus("say"); s.Isolation != "sandboxed (native)" || s.Version != "1.0.0" {
		t.Errorf("it is %+v", s)
	}
	answers := make(chan string, 1<<16)
	calls, stop := press(t, []caller{o.plain("say"), o.plain("say"), o.session("say")}, func(began time.Time, text string, err error) error {
		answers <- text
		return lossless(began, text, err)
	})
	i.version("1.1.0", shCapsule, aCapsule)
	if out := i.must("tool", "update"); !strings.Contains(out, "say 1.0.0 -> 1.1.0: updated") {
		t.Errorf("update says %s", out)
	}
	if got := o.mustCall("say"); got != "1.1.0" {
		t.Errorf("after the update it says %q", got)
	}
	for round := range 3 { // the same version with other files
		i.version("1.1.0", shCapsule+fmt.Sprintf("# %d\n", round), aCapsule)
		i.must("install", "--local", i.src)
	}
	if got := o.mustCall("say"); got != "1.1.0" || o.count("reload", func(l map[string]any) bool { return l["removed"] != 0.0 || l["failed"] != 0.0 }) > 0 {
		t.Errorf("after the same version was installed again it says %q, or it was not served for a moment", got)
	}
	i.version("1.2.0", "#!/bin/sh\necho broken >&2\nexit 3\n", aCapsule)
	out, err := i.orla("update", "say")
	if err == nil || !strings.Contains(out, "say 1.2.0 was not READY, and 1.1.0 serves again") {
		t.Errorf("an update that does not start: %v %s", err, out)
	}
	i.version("1.1.0", "#!/bin/sh\necho broken >&2\nexit 3\n", aCapsule)
	out, err = i.orla("update", "say")
	if err == nil || !strings.Contains(out, "say 1.1.0 was not READY, and 1.1.0 serves again") {
		t.Errorf("one of the same version: %v %s", err, out)
	}
	if got := o.mustCall("say"); got != "1.1.0" {
		t.Errorf("after it was taken back it says %q", got)
	}
	stop()
	close(answers)
	seen := map[string]bool{}
	for text := range answers {
		seen[text] = true
	}
	if calls.calls.Load() < 10 || seen["1.2.0"] || !seen["1.1.0"] {
		t.Errorf("%d calls, answered with %v", calls.calls.Load(), seen)
	}
	if lock, err := os.ReadFile(filepath.Join(i.dir, "orla.lock")); err != nil || strings.Contains(string(lock), "1.2.0") {
		t.Errorf("the lock has %s, %v", lock, err)
	}
	i.must("use", "say@1.0.0")
	if got := o.mustCall("say"); got != "1.0.0" {
		t.Errorf("after use it says %q", got)
	}
	pid := o.toolStatus("say").Pid
	i.must("uninstall", "say")
	testkit.Eventually(t, "its process is gone", func() bool { return !alive(pid) })
	if slices.ContainsFunc(o.status().Tools, func(s control.ToolStatus) bool { return s.Name == "say" }) {
		t.Error("it is served after it was uninstalled")
	}
}

// SPEC M4: on a full disk nothing changes, nothing is left, and the next install works.
func TestM4AFullDisk(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\necho VERSION\n", "")
	i.must("install", "--local", i.src)
	lock := fileText(t, i.dir, "orla.lock")
	i.version("1.1.0", "#!/bin/sh\necho VERSION\n", "")
	i.write(i.src, "large", strings.Repeat("x", 1<<20))
	cmd := i.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `ulimit -f 200; exec "$0" "$@"`, orlaBinary(t), "install", "--local", i.src}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "large") {
		t.Errorf("it ends with %v: %s", err, out)
	}
	if left, _ := filepath.Glob(filepath.Join(i.dir, "tools", ".orla", "stage-*")); len(left) > 0 || fileText(t, i.dir, "orla.lock") != lock {
		t.Errorf("%v is left, or the lock has changed", left)
	}
	if out := i.must("call", "say"); strings.TrimSpace(out) != "1.0.0" {
		t.Errorf("it says %s", out)
	}
	i.must("uninstall", "say")
	i.write(filepath.Join(i.dir, "tools"), "say.sh", "#!/bin/sh\n")
	if out, err := i.orla("install", "--local", i.src); err == nil || !strings.Contains(out, "is a tool with this name already") {
		t.Errorf("over a tool of the user's with the same name: %v %s", err, out)
	}
}

// SPEC M7: what the package says is shown without what a terminal would obey, and nothing is installed that was not
// agreed to.
func TestM7ThePermissionScreen(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\n", "permissions: [network, 'network:example.com']\nauthor: \"\\e[2Jevil\"\n")
	i.write(i.src, "tool.yaml", strings.Replace(fileText(t, i.src, "tool.yaml"), "it says its version", `"\e[1A\e[2Kharmless\u202e"`, 1))
	out, err := i.orla("install", "--local", i.src)
	if err == nil || !strings.Contains(out, "network: the whole network, including services of this machine") || !strings.Contains(out, "Orla cannot enforce:\n  network:example.com") || !strings.Contains(out, "--yes agrees") {
		t.Errorf("without an answer: %v\n%s", err, out)
	}
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("it prints %q", out)
	}
	if out, err := i.orla("install", "--local", i.src, "--yes"); err == nil || !strings.Contains(out, "--accept-unenforced accepts that") {
		t.Errorf("with --yes alone: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(i.dir, "orla.lock")); err == nil {
		t.Error("something was installed")
	}
	i.must("install", "--local", i.src, "--yes", "--accept-unenforced")
	i.write(filepath.Join(i.home, "bad"), "tool.yaml", strings.Replace(fileText(t, i.src, "tool.yaml"), "[network,", "[camera,", 1))
	i.write(filepath.Join(i.home, "bad"), "run", "#!/bin/sh\n")
	if out := i.must("validate", filepath.Join(i.home, "bad")); !strings.Contains(out, `"camera" is not a permission`) {
		t.Errorf("validate prints %s", out)
	}
	if out := i.must("info", "say"); strings.ContainsAny(out, "\x1b\u202e") || !strings.Contains(out, "not enforced  network:example.com") {
		t.Errorf("info prints %q", out)
	}
	if out := i.must("list", "--json"); !strings.Contains(out, `"serves": true`) {
		t.Errorf("list prints %s", out)
	}
}

func fileText(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// RFC 3 §7.2: packages go into the tools folder of the nearest orla.yaml, otherwise into ~/.orla/tools; --global and
// --tools-dir say otherwise.
func TestRFC3S7_2WherePackagesGo(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\necho VERSION\n", "")
	project, sub := i.dir, filepath.Join(i.dir, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil { //nolint:gosec // it is a project
		t.Fatal(err)
	}
	nowhere := t.TempDir()
	for _, c := range []struct {
		in, dir, lock string
		args          []string
	}{
		{sub, filepath.Join(project, "tools"), project, nil},
		{sub, filepath.Join(i.home, ".orla", "tools"), filepath.Join(i.home, ".orla"), []string{"--global"}},
		{nowhere, filepath.Join(i.home, ".orla", "tools"), filepath.Join(i.home, ".orla"), nil},
		{nowhere, filepath.Join(nowhere, "x"), filepath.Join(nowhere, "x"), []string{"--tools-dir", "x"}},
	} {
		i.dir = c.in
		i.must(append([]string{"install", "--local", i.src}, c.args...)...)
		for _, file := range []string{filepath.Join(c.dir, "say", "1.0.0", "run"), filepath.Join(c.lock, "orla.lock")} {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("in %s with %v: %v", c.in, c.args, err)
			}
		}
		i.must(append([]string{"uninstall", "say"}, c.args...)...)
	}
}

// SPEC M4: the orla.yaml of a repository that was cloned does not choose a folder elsewhere to install into. The user does.
func TestM4AToolsDirElsewhereIsNamedByTheUser(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\necho VERSION\n", "")
	ssh := filepath.Join(i.home, ".ssh")
	i.write(ssh, "id_ed25519", "mine")
	i.dir = filepath.Join(i.home, "src", "clone")
	i.write(i.dir, "orla.yaml", "tools_dir: ../../.ssh\n")
	for _, args := range [][]string{{"install", "--local", i.src}, {"install"}, {"update", "--dry-run"}, {"uninstall", "id_ed25519"}} {
		out, err := i.orla(args...)
		if err == nil || !strings.Contains(out, "outside its own folder") || !strings.Contains(out, "--tools-dir") {
			t.Errorf("orla %v: %v\n%s", args, err, out)
		}
	}
	if entries, err := os.ReadDir(ssh); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
	i.must("install", "--local", i.src, "--tools-dir", ssh)
	i.must("uninstall", "say") // it has packages by now
	if got := fileText(t, ssh, "id_ed25519"); got != "mine" {
		t.Errorf("the file has %q", got)
	}
}

// RFC 3 §7.1, §6.2 and §10: a name is looked up in a registry, and the tag that its repository has is installed.
func TestRFC3S7_1InstallsFromARegistry(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git")
	i := newInstallable(t)
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	i.version("1.0.0", "#!/bin/sh\necho VERSION\n", "")
	git(i.src, "init", "-q")
	git(i.src, "add", "-A")
	git(i.src, "commit", "-qm", "1")
	git(i.src, "tag", "v1.0.0")
	registry := t.TempDir()
	i.write(registry, "registry.yaml", "version: 1\nregistry_url: file://"+registry+"\ntools:\n  - name: say\n    description: it says its version\n    repository: file://"+i.src+"\n    keywords: [speech]\n")
	git(registry, "init", "-q")
	git(registry, "add", "-A")
	git(registry, "commit", "-qm", "1")
	from := "--registry=file://" + registry
	if out, err := i.orla("install", "sy", from); err == nil || !strings.Contains(out, `did you mean "say"?`) {
		t.Errorf("a wrong name: %v %s", err, out)
	}
	if out := i.must("search", "speech", from); !strings.Contains(out, "say\n  it says its version") {
		t.Errorf("search prints %s", out)
	}
	for _, word := range []string{"say@^1.0", "say@1.0.0", "say@v9.0.0", "say@"} {
		if out, err := i.orla("install", word, from); err == nil {
			t.Errorf("%s is installed: %s", word, out)
		}
	}
	i.must("install", "say", from)
	if out := i.must("call", "say"); strings.TrimSpace(out) != "1.0.0" {
		t.Errorf("it says %s", out)
	}
	lock := fileText(t, i.dir, "orla.lock")
	if !strings.Contains(lock, "tag: v1.0.0\n") || !strings.Contains(lock, "unsigned: true\n") || !strings.Contains(lock, "registry: ") {
		t.Errorf("the lock is\n%s", lock)
	}
	i.must("install", "say@v1.0.0", from, "--frozen")
	if fileText(t, i.dir, "orla.lock") != lock {
		t.Error("--frozen changed the lock")
	}
	if out := i.must("cache", "clear"); !strings.Contains(out, "removed") {
		t.Errorf("cache clear prints %s", out)
	}
	if out, err := i.orla("install", "--local", t.TempDir(), "--frozen"); err == nil {
		t.Errorf("an empty folder is installed: %s", out)
	}
}

// SPEC M7, RFC 3 §11.2 and §11.3: an installed tool gets what was granted, and nothing else that it tries.
func TestM7WhatWasNotGranted(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	data := t.TempDir()
	for _, dir := range []string{"read", "write", "other"} {
		i.write(data, dir+"/f", "content\n")
	}
	for _, path := range []string{filepath.Dir(data), data, data + "/read", data + "/write", data + "/other", data + "/write/f", data + "/read/f"} {
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
			t.Fatal(err)
		}
	}
	i.version("1.0.0", `#!/bin/sh
try() { if sh -c "$2" >/dev/null 2>&1; then echo "$1"; fi; }
try read 'cat DATA/read/f'
try write 'echo x >>DATA/write/f'
try variable 'test "$GRANTED" = yes'
try write-read 'echo x >>DATA/read/f'
try other 'cat DATA/other/f'
try other-variable 'test -n "$HIDDEN"'
try lock 'cat PROJECT/orla.lock || cat PROJECT/orla.yaml'
try own 'echo x >>PROJECT/tools/say/1.0.0/run'
try network 'test "$(ls /sys/class/net /proc/net/dev 2>/dev/null | grep -c eth)" -gt 0'
try processes 'test "$(ls /proc | grep -c "^[0-9]")" -gt 20'
true
`, "permissions: ['filesystem:read:"+data+"/read', 'filesystem:write:"+data+"/write', 'env:GRANTED']\nruntime: {isolation_mode: none}\n")
	run := strings.NewReplacer("DATA", data, "PROJECT", i.dir).Replace(fileText(t, i.src, "run"))
	i.write(i.src, "run", run)
	i.must("install", "--local", i.src, "--yes")
	cmd := i.command("call", "say")
	cmd.Env = append(cmd.Env, "GRANTED=yes", "HIDDEN=secret")
	out, err := cmd.CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, []string{"read", "write", "variable"}) {
		t.Errorf("it may %v: %v", got, err)
	}
	// Somebody takes the grants away: nothing runs until they are there again.
	if err := os.Rename(filepath.Join(i.dir, "orla.lock"), filepath.Join(i.dir, "away")); err != nil {
		t.Fatal(err)
	}
	if out, err := i.orla("call", "say"); err == nil {
		t.Errorf("without a lock it runs: %s", out)
	}
}

// SPEC M7: a tool with network reaches what listens on ports of this machine, which is said when it is granted: an Orla
// without tokens among them. It does not reach the control socket.
func TestM7TheNetworkAndOrlaItself(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "/usr/bin/python3")
	i := newInstallable(t)
	socket := filepath.Join(i.dir, "sock", "orla.sock")
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\nsocket: "+socket+"\ntimeout: 60s\n")
	i.write(filepath.Join(i.dir, "tools"), "other.sh", "#!/bin/sh\necho reached\n")
	if err := os.Mkdir(filepath.Dir(socket), 0o755); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
		t.Fatal(err)
	}
	o := i.serve()
	if _, err := os.Stat(socket); err != nil {
		t.Fatal(err)
	}
	i.version("1.0.0", `#!/usr/bin/python3
import socket, urllib.request
try:
    socket.socket(socket.AF_UNIX).connect("`+socket+`")
    print("the control socket")
except OSError as err:
    print(err.strerror)
body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"other","arguments":{}}}'
r = urllib.request.Request("`+o.url+`", body, {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
try:
    print("reached" in urllib.request.urlopen(r).read().decode())
except OSError as err:
    print(err)
`, "permissions: [network, 'filesystem:read:"+filepath.Dir(socket)+"']\n")
	out := i.must("install", "--local", i.src, "--yes", "--accept-unenforced")
	if !strings.Contains(out, "including services of this machine; an Orla without tokens answers it too") {
		t.Errorf("the screen says %s", out)
	}
	if got, want := strings.Fields(i.must("call", "say", "--socket", "none")), "Address family not supported by protocol"; strings.Join(got[:len(got)-1], " ") != want || got[len(got)-1] != "True" {
		t.Errorf("it prints %q; want %s, and that the other tool was reached", got, want)
	}
}
