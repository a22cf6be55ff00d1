package program

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/mcpregistry"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// writeBundle writes an MCP bundle of a Python server that asks two questions.
func writeBundle(t *testing.T, file, version string) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(out)
	for name, text := range map[string]string{
		"manifest.json": `{"manifest_version": "0.3", "name": "asks", "version": "` + version + `", "description": "x", "author": {"name": "a"},
			"server": {"type": "python", "entry_point": "main.py", "mcp_config": {"command": "python", "args": ["${__dirname}/main.py"],
				"env": {"ZONE": "${user_config.zone}", "KEY": "${user_config.key}"}}},
			"user_config": {"zone": {"type": "string", "title": "Zone", "required": true}, "key": {"type": "string", "title": "Key", "sensitive": true, "required": true}}}`,
		"main.py": "pass\n",
	} {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || out.Close() != nil {
		t.Fatal(err)
	}
}

// remove removes the folder of a version, as if it was never fetched.
func (i *installable) remove(name, version string) {
	i.t.Helper()
	if err := os.RemoveAll(filepath.Join(i.dir, "tools", name, version)); err != nil {
		i.t.Fatal(err)
	}
}

// SPEC M5: orla install without a name installs MCP bundles again as the lock has them, with the answers of before, and
// orla update installs a newer file. The Secret stays, and is in no lock.
func TestM5BundlesAgain(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	file := filepath.Join(i.home, "asks.mcpb")
	writeBundle(t, file, "1.0.0")
	i.must("install", "--local", file, "--yes", "--set", "zone=north", "--set", "key=s3cret")
	lock, secret := fileText(t, i.dir, "orla.lock"), fileText(t, i.dir, "tools", "asks", "secret.yaml")
	if !strings.Contains(lock, "zone: north") || strings.Contains(lock, "s3cret") || !strings.Contains(secret, "s3cret") {
		t.Fatalf("the lock is\n%s", lock)
	}
	i.remove("asks", "1.0.0")
	i.must("install", "--yes")
	if out := i.must("verify"); !strings.Contains(out, "as the lock has it") || fileText(t, i.dir, "orla.lock") != lock || fileText(t, i.dir, "tools", "asks", "secret.yaml") != secret {
		t.Errorf("verify prints %s; the lock is\n%s", out, fileText(t, i.dir, "orla.lock"))
	}
	i.remove("asks", "1.0.0")
	for _, args := range [][]string{{"init", "-q"}, {"add", "-f", "tools/asks/secret.yaml"}} { // as in a repository that was cloned
		if out, err := exec.Command("git", append([]string{"-C", i.dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v %s", err, out)
		}
	}
	if out, err := i.orla("install", "--yes"); err == nil || !strings.Contains(out, `"key" needs a value`) {
		t.Errorf("the secret of a repository is used: %v %s", err, out)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(i.dir, ".git")), os.RemoveAll(filepath.Join(i.dir, "tools", "asks"))); err != nil { // on another machine
		t.Fatal(err)
	}
	if out, err := i.orla("install"); err == nil || !strings.Contains(out, `"key" needs a value`) || strings.Contains(out, `"zone" needs`) || strings.Contains(out, "all that the lock has") {
		t.Errorf("without the secret: %v %s", err, out)
	}
	if out := i.must("install", "--yes", "--set", "key=other"); !strings.Contains(out, "It is set up with these answers:\n  zone: north\n") {
		t.Errorf("what somebody else has answered is not shown: %s", out) // such as where the secret goes
	}
	if got := fileText(t, i.dir, "tools", "asks", "secret.yaml"); !strings.Contains(got, "other") || fileText(t, i.dir, "orla.lock") != lock {
		t.Errorf("the secret is\n%s", got)
	}
	if out := i.must("list", "--outdated"); !strings.HasSuffix(strings.TrimSpace(out), "-") {
		t.Errorf("a file has newer versions or none: %s", out)
	}
	if out := i.must("update"); !strings.Contains(out, "asks 1.0.0 is the newest") {
		t.Errorf("update prints %s", out)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	writeBundle(t, file, "1.1.0")
	if out := i.must("update", "--yes"); !strings.Contains(out, "asks 1.0.0 -> 1.1.0: updated") {
		t.Errorf("update prints %s", out)
	}
	i.remove("asks", "1.0.0")
	if out, err := i.orla("install"); err == nil || !strings.Contains(out, "the tree is not the one that the lock has") && !strings.Contains(out, "version") {
		t.Errorf("the old version is installed from another file: %s", out)
	}
}

// SPEC M5: the same for servers of MCP registries. A newer version of one that cannot stand beside the old one is said.
func TestM5ServersAgain(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	const name = "com.apify/apify-mcp-server"
	servers := mcpregistry.Servers()
	var answers atomic.Pointer[http.Handler]
	serve := func(servers []json.RawMessage, status map[string]string) {
		h := mcpregistry.Handler(servers, status)
		answers.Store(&h)
	}
	serve(servers, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answers.Load()).ServeHTTP(w, r) }))
	defer s.Close()
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\nregistries: ["+s.URL+"/v0.1]\n")
	out, err := i.orla("install", name, "--yes")
	if err == nil || !strings.Contains(out, `"Authorization" needs a value`) {
		t.Fatalf("without an answer: %v %s", err, out)
	}
	if out := i.must("install", name, "--yes", "--set", "Authorization=Bearer s3cret"); !strings.Contains(out, "Extract data from any website") {
		t.Errorf("the description of a remote server is not shown:\n%s", out)
	}
	lock := fileText(t, i.dir, "orla.lock")
	entries, err := os.ReadDir(filepath.Join(i.dir, "tools"))
	if err != nil || strings.Contains(lock, "s3cret") {
		t.Fatalf("%v %s", err, lock)
	}
	short := entries[len(entries)-1].Name()
	i.remove(short, "0.15.2")
	i.must("install", "--yes")
	if out := i.must("verify"); !strings.Contains(out, "as the lock has it") || fileText(t, i.dir, "orla.lock") != lock {
		t.Errorf("verify prints %s; the lock is\n%s", out, fileText(t, i.dir, "orla.lock"))
	}
	if out := i.must("update"); !strings.Contains(out, "0.15.2 is the newest") {
		t.Errorf("update prints %s", out)
	}
	newer := slices.Clone(servers)
	for at, raw := range newer {
		if strings.Contains(string(raw), `"`+name+`"`) {
			newer[at] = json.RawMessage(strings.Replace(string(raw), "0.15.2", "0.16.0", 1))
		}
	}
	outdated := func(servers []json.RawMessage, status map[string]string, want string) {
		t.Helper()
		serve(servers, status)
		i.must("cache", "clear")
		if out := i.must("list", "--outdated"); !strings.Contains(out, want) {
			t.Errorf("list prints %s, want %s", out, want)
		}
	}
	outdated(servers, map[string]string{name: "deprecated"}, "the registry says that it is deprecated")
	outdated(servers, map[string]string{name: "deleted"}, "the registry has deleted this server")
	outdated(append(slices.Clone(newer), servers...), nil, "/v0.1  0.16.0 is there")
	outdated(newer, nil, "does not have this version any more; 0.16.0 is there")
	if out, err := i.orla("update", "--yes"); err == nil || !strings.Contains(out, "run orla uninstall "+short+" first") {
		t.Errorf("update prints %v %s", err, out)
	}
}

// docs/decisions/0048: a repository of this machine that the command line named once is opened again, unless it is in the
// folder of the lock: whoever brought the lock could have brought it too.
func TestM5FileURLsAgain(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git")
	i := newInstallable(t)
	config := gitConfig(t)
	commit := func(version string) {
		t.Helper()
		i.version(version, "#!/bin/sh\necho VERSION\n", "")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "git init -q && git add -A && git commit -qm x && git tag v"+version)
		cmd.Dir, cmd.Env = i.src, append(os.Environ(), config)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	commit("1.0.0")
	i.must("install", "file://"+i.src)
	i.remove("say", "1.0.0")
	i.must("install")
	commit("1.1.0")
	if out := i.must("list", "--outdated"); !strings.Contains(out, "1.1.0 is there") {
		t.Errorf("list prints %s", out)
	}
	if out := i.must("update"); !strings.Contains(out, "say 1.0.0 -> 1.1.0: updated") {
		t.Errorf("update prints %s", out)
	}
	inside := filepath.Join(i.dir, "say")
	if err := os.CopyFS(inside, os.DirFS(i.src)); err != nil {
		t.Fatal(err)
	}
	i.write(i.dir, "orla.lock", strings.ReplaceAll(fileText(t, i.dir, "orla.lock"), i.src, inside))
	i.remove("say", "1.1.0")
	for _, command := range []string{"install", "update"} {
		if out, err := i.orla(command); err == nil || !strings.Contains(out, "in the folder of the lock") {
			t.Errorf("%s opens it: %v %s", command, err, out)
		}
	}
}

// SPEC R6: the installer of the dependencies of an installed package runs in a sandbox: it has the network, sees the package
// and changes the environment alone.
func TestR6InstallersAreConfined(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "/usr/bin/node")
	i := newInstallable(t)
	bin := t.TempDir()
	i.write(i.home, ".npmrc", "secret\n")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // nobody needs it any more
	i.write(bin, "npm", strings.ReplaceAll(`#!/bin/sh
try() { if sh -c "$2" >/dev/null 2>&1; then echo "$1"; fi; }
package=`+filepath.Join(i.dir, "tools", "say", "1.0.0")+`
{
	try package "cat $package/tool.yaml"
	try network '/usr/bin/node -e "require(\"net\").connect(PORT, \"127.0.0.1\").on(\"connect\", () => process.exit(0))"'
	try home 'cat `+i.home+`/.npmrc'
	try variable 'test -n "$HIDDEN"'
	try write-package "echo x >>$package/tool.yaml"
	try lock 'cat `+i.dir+`/orla.lock'
	try processes 'test "$(ls /proc | grep -c "^[0-9]")" -gt 20'
} >$ORLA_ENV/said
mkdir -p node_modules/acme
echo "module.exports = \"$(tr '\n' ' ' <$ORLA_ENV/said)\"" >node_modules/acme/index.js
`, "PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)))
	for _, dir := range []string{bin, i.home, i.dir} { // nothing but the sandbox is to be in the way
		for ; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the same
				t.Fatal(err)
			}
		}
	}
	i.write(i.src, "tool.yaml", "name: say\nversion: 1.0.0\ndescription: x\nentrypoint: main.mjs\nmcp: {input_schema: {}}\n")
	i.write(i.src, "main.mjs", "#!/usr/bin/env node\nimport acme from 'acme';\nconsole.log(acme);\n")
	i.write(i.src, "package.json", `{"name": "say", "version": "1.0.0", "dependencies": {"acme": "1.0.0"}}`)
	i.write(i.src, "package-lock.json", `{"lockfileVersion": 3, "packages": {}}`)
	i.must("install", "--local", i.src)
	cmd := i.command("call", "say", "--socket", "none")
	cmd.Env = append(cmd.Env, "PATH="+bin+":/usr/bin:/bin", "HIDDEN=secret")
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "package network" {
		t.Errorf("the installer may: %s %v", out, err)
	}
}

// SPEC M7: an install says that what it has installed cannot be called where no sandbox can be made. An Orla without that says nothing.
func TestM7AnInstallSaysThatThereIsNoSandbox(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\necho VERSION\n", "")
	if out := i.must("install", "--local", i.src); strings.Contains(out, "sandbox can be made") {
		t.Errorf("as root it prints %s", out)
	}
	i.must("uninstall", "say")
	raw, err := os.ReadFile(orlaBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(i.home, "orla") // where another user finds it
	if err := testkit.WriteProgram(program, raw); err != nil {
		t.Fatal(err)
	}
	const user = 12345 // who has no cgroup
	for _, dir := range []string{i.dir, i.home, i.src} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, user, user))
		})
		for ; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			err = errors.Join(err, os.Chmod(dir, 0o755)) //nolint:gosec // another user has to reach it
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := i.command("install", "--local", i.src)
	cmd.Path, cmd.SysProcAttr = program, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no native sandbox can be made here") || !strings.Contains(string(out), "it is for say, whose calls are refused") {
		t.Errorf("%v\n%s", err, out)
	}
}

// SPEC M7: what the configuration gives a package is shown before the installation, and has to be agreed to; a package of the same
// name from elsewhere gets nothing of it, and the text says so.
func TestM7WhatTheConfigurationGivesIsShown(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.version("1.0.0", "#!/bin/sh\nls "+i.home+"\n", "runtime: {max_output: 1000GiB}\n")
	i.write(i.home, "private", "")
	for _, c := range []struct {
		source, want string
		asks         bool
	}{
		{i.src, "isolation: none: it runs as you do", true},
		{"/elsewhere", "from /elsewhere, so nothing of that holds for this one", false},
	} {
		i.write(i.dir, "orla.yaml", "packages:\n  - {name: say, source: "+c.source+", isolation: none}\n")
		out, err := i.orla("install", "--local", i.src)
		if (err != nil) != c.asks || !strings.Contains(out, c.want) || strings.Contains(out, "no network") == c.asks || !strings.Contains(out, "chose 1000GiB") {
			t.Errorf("with a word about %s: %v %s", c.source, err, out)
		}
		if c.asks {
			i.must("install", "--yes", "--local", i.src)
		}
		if out, err := i.orla("call", "say"); strings.Contains(out, "private") != c.asks {
			t.Errorf("with a word about %s, it sees: %v %s", c.source, err, out)
		}
		i.must("uninstall", "say")
	}
}

// SPEC M7: whoever installs what a lock has, such as that of a repository that was cloned, sees what the lock and the
// configuration give, and has to agree to it, also with --frozen. What is there already is not asked about.
func TestM7AnInstallOfTheLockAsks(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	const asks = "permissions: [network, 'network:example.com']\n"
	i.version("1.0.0", "#!/bin/sh\n", asks)
	i.must("install", "--yes", "--accept-unenforced", "--local", i.src)
	lock := fileText(t, i.dir, "orla.lock")
	refused := func(why, want string, args ...string) {
		t.Helper()
		i.remove("say", "")
		out, err := i.orla(append([]string{"install"}, args...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", why, err, out)
		}
		if _, err := os.Stat(filepath.Join(i.dir, "tools", "say", "1.0.0")); err == nil {
			t.Errorf("%s: it is installed", why)
		}
	}
	refused("without an agreement", "network: the whole network")
	refused("without an agreement", "--yes agrees to them", "--frozen")
	refused("with --yes alone", "--accept-unenforced accepts that", "--yes", "--frozen")
	i.must("install", "--yes", "--accept-unenforced", "--frozen")
	if out := i.must("install"); !strings.Contains(out, "all that the lock has is installed") || fileText(t, i.dir, "orla.lock") != lock {
		t.Errorf("once more: %s, and the lock is\n%s", out, fileText(t, i.dir, "orla.lock"))
	}
	i.version("1.1.0", "#!/bin/sh\n", asks)
	i.remove("say", "")
	for _, args := range [][]string{{"update"}, {"update", "--yes"}, {"install", "--local", i.src}} { // nobody has agreed here to what the lock grants the version before
		if out, err := i.orla(args...); err == nil || !strings.Contains(out, "nothing was changed") || strings.Contains(out, "1.0.0 serves now") {
			t.Errorf("%v of what is not here: %v\n%s", args, err, out)
		}
	}
	i.version("1.0.0", "#!/bin/sh\n", asks)
	i.write(i.dir, "orla.lock", strings.NewReplacer("    permissions:\n      - network\n      - network:example.com\n", "", "    unenforced:\n      - network:example.com\n", "").Replace(lock))
	i.write(i.dir, "orla.yaml", "packages:\n  - {name: say, source: "+i.src+", isolation: none}\n")
	refused("a configuration that gives it more", "isolation: none: it runs as you do")
	i.write(i.dir, "orla.yaml", "")
	i.must("install")
}

// SPEC M7: what the machine of a lock could enforce, and this one cannot, has to be accepted here, and can be.
func TestM7AnotherMachineEnforcesLess(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	shared := filepath.Join(i.home, "shared")
	if err := os.MkdirAll(filepath.Join(shared, "bin"), 0o755); err != nil { //nolint:gosec // a tool sees it
		t.Fatal(err)
	}
	i.version("1.0.0", "#!/bin/sh\n", "permissions: ['filesystem:write:"+shared+"']\n")
	i.must("install", "--yes", "--local", i.src)
	lock := fileText(t, i.dir, "orla.lock")
	orla := func(args ...string) (string, error) {
		cmd := i.command(args...)
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH")+":"+filepath.Join(shared, "bin"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := orla("install", "--frozen", "--accept-unenforced"); err == nil || !strings.Contains(out, "--frozen forbids that") || fileText(t, i.dir, "orla.lock") != lock {
		t.Errorf("with --frozen: %v %s", err, out)
	}
	if out, err := orla("install"); err == nil || !strings.Contains(out, "--accept-unenforced accepts that") {
		t.Errorf("without an agreement: %v %s", err, out)
	}
	if out, err := orla("install", "--accept-unenforced"); err != nil || !strings.Contains(fileText(t, i.dir, "orla.lock"), "unenforced:\n      - filesystem:write:"+shared+"\n") {
		t.Errorf("%v %s; the lock is\n%s", err, out, fileText(t, i.dir, "orla.lock"))
	}
	i.must("install", "--yes", "--local", i.src) // on the machine that can
	if out, err := orla("install", "--frozen"); err != nil || !strings.Contains(out, "all that the lock has is installed") {
		t.Errorf("once more: %v %s", err, out)
	}
}
