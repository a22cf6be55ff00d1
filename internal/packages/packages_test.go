package packages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/manifest"
)

// killVar makes the test binary do one thing to a Store, and kill itself at a step: WHAT STEP PROJECT SOURCE.
const killVar = "PACKAGES_KILL"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(killVar)); len(words) == 4 {
		dieAt(words[0], words[1], words[2], words[3])
		return
	}
	leaks.Main(m)
}

// project is a folder with an orla.yaml.
type project struct {
	*testing.T
	dir, sources string
	store        packages.Store
}

func newProject(t *testing.T) *project {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("tools_dir: ./tools\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &project{t, dir, t.TempDir(), storeOf(dir)}
}

func storeOf(dir string) packages.Store {
	tools, lock := filepath.Join(dir, "tools"), filepath.Join(dir, lockfile.Name)
	return packages.Store{Dir: tools, Lock: lock, Machine: permission.Machine{Home: filepath.Join(dir, "home"), Private: []string{tools, lock}}, Git: origin.Git{Local: true}}
}

// source writes a package into the folder of its name, in place of what is there, and returns the folder.
func (p *project) source(name, version, more string) string {
	p.Helper()
	dir := filepath.Join(p.sources, name)
	p.must(os.RemoveAll(dir))
	p.put(dir, "tool.yaml", "name: "+name+"\nversion: "+version+"\ndescription: it says its version\nentrypoint: bin/run\n"+more)
	p.put(dir, "bin/run", "#!/bin/sh\necho "+version+"\n")
	return dir
}

func (p *project) put(dir, name, text string) {
	p.Helper()
	file := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil { //nolint:gosec // it may be run
		p.Fatal(err)
	}
}

// do does something in a Session.
func (p *project) do(what func(*packages.Session) error) error {
	p.Helper()
	s, err := p.store.Open(p.Context())
	if err != nil {
		return err
	}
	return what(s)
}

var all = packages.Consent{Permissions: true, Unenforced: true}

func (p *project) install(dir string) error {
	p.Helper()
	return p.do(func(s *packages.Session) error { return installLocal(p.Context(), s, dir) })
}

func installLocal(ctx context.Context, s *packages.Session, dir string) error {
	c, err := s.Local(ctx, dir)
	if err != nil {
		return err
	}
	return c.Install(ctx, all)
}

func (p *project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// SPEC M4: a link in a repository does not make an install remove the files that it leads to, nor other files.
func TestM4ALinkInPlaceOfTheStage(t *testing.T) {
	p := newProject(t)
	victim, tools := filepath.Join(p.dir, "victim"), filepath.Join(p.dir, "tools")
	for _, dir := range []string{victim, tools} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(victim, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../victim", filepath.Join(tools, ".orla")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a link: %v", err)
	}
	if _, err := os.Stat(filepath.Join(victim, "a")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(tools, ".orla")), os.Rename(victim, filepath.Join(tools, ".orla"))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tools, ".orla", "a")); err != nil {
		t.Errorf("what is not a stage: %v", err)
	}
}

// found is what Orla would serve.
func (p *project) found() manifest.Result {
	p.Helper()
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		p.Fatal(err)
	}
	return discovery.Find(cfg, l.Home)
}

// serves returns the version of the only tool; "" if there is none.
func (p *project) serves() string {
	p.Helper()
	tools := p.found().Tools
	if len(tools) == 0 {
		return ""
	}
	return tools[0].Version
}

// rest returns what is in the folder of work beside the lock.
func (p *project) rest() (list []string) {
	p.Helper()
	entries, err := os.ReadDir(filepath.Join(p.store.Dir, ".orla"))
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != ".gitignore" {
			list = append(list, e.Name())
		}
	}
	return list
}

// RFC 3 §7.1 and §8.2: each version is installed to TOOLS_DIR/NAME/VERSION, and the highest serves until another one
// is chosen.
func TestRFC3S7_1AndS8_2VersionsStandSideBySide(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.2.0", "")))
	p.must(p.install(p.source("say", "1.10.0", "")))
	p.must(p.install(p.source("say", "1.3.0", "")))
	for _, v := range []string{"1.2.0", "1.3.0", "1.10.0"} {
		if _, err := os.Stat(filepath.Join(p.store.Dir, "say", v, "bin", "run")); err != nil {
			t.Error(err)
		}
	}
	if got := p.serves(); got != "1.10.0" {
		t.Errorf("%q serves", got)
	}
	p.must(p.do(func(s *packages.Session) error { return s.Use(p.Context(), "say", "1.2.0") }))
	if got := p.serves(); got != "1.2.0" {
		t.Errorf("after use, %q serves", got)
	}
	if err := p.do(func(s *packages.Session) error { return s.Use(p.Context(), "say", "9.0.0") }); !errors.Is(err, packages.ErrNotInstalled) {
		t.Errorf("use of a version that is not there: %v", err)
	}
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", "1.2.0"); return err }))
	if got := p.serves(); got != "1.10.0" {
		t.Errorf("after its removal, %q serves", got)
	}
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }))
	if lock, err := lockfile.Read(p.store.Lock); p.serves() != "" || err != nil || len(lock.Packages) != 0 || exists(filepath.Join(p.store.Dir, "say")) {
		t.Errorf("after uninstall there is %v, %v", lock, err)
	}
	if err := p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }); !errors.Is(err, packages.ErrNotInstalled) {
		t.Errorf("once more: %v", err)
	}
	if left := p.rest(); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// RFC 3 §4.1, §5.1, §5.2 and §5.4: what is not a valid package is not installed, and changes nothing.
func TestRFC3S5_4ManifestsAreValidated(t *testing.T) {
	p := newProject(t)
	for name, c := range map[string]struct {
		change func(dir string)
		want   string
	}{
		"no manifest":    {func(dir string) { _ = os.Remove(filepath.Join(dir, "tool.yaml")) }, "has no tool.yaml at its top"},
		"not YAML":       {func(dir string) { p.put(dir, "tool.yaml", "{") }, "tool.yaml:1"},
		"not UTF-8":      {func(dir string) { p.put(dir, "tool.yaml", "name: \xff\n") }, "tool.yaml"},
		"no description": {func(dir string) { p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\nentrypoint: bin/run\n") }, "description"},
		"an empty description": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: ''\nentrypoint: bin/run\n")
		}, "description: must not be empty"},
		"an empty name": {func(dir string) {
			p.put(dir, "tool.yaml", "name: ''\nversion: 1.0.0\ndescription: d\nentrypoint: bin/run\n")
		}, "name"},
		"a version of two parts": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: '1.0'\ndescription: d\nentrypoint: bin/run\n")
		}, "must be a SemVer 2.0 version"},
		"no entrypoint": {func(dir string) { _ = os.Remove(filepath.Join(dir, "bin/run")) }, "does not exist in the package"},
		"an entrypoint outside": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: d\nentrypoint: ../../bin/sh\n")
		}, "inside the package"},
		"an entrypoint not to run": {func(dir string) {
			p.must(os.Chmod(filepath.Join(dir, "bin/run"), 0o600))
			p.must(os.WriteFile(filepath.Join(dir, "bin/run"), []byte("x"), 0o600))
		}, "neither executable nor a script"},
		"a record": {func(dir string) { p.put(dir, lockfile.RecordName, "{}") }, lockfile.RecordName},
		"rules": {func(dir string) {
			p.put(dir, "p.yaml", "apiVersion: orloj.dev/v1\nkind: AgentRole\nmetadata: {name: r}\nspec: {permissions: [tool:x]}\n")
		}, "rules of calls"},
		"a secret": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: d\nentrypoint: bin/run\nruntime: {isolation_mode: container, image: evil/x, image_pull_secret: prod}\n")
		}, "may not use secrets"},
		"a setup": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: d\nentrypoint: bin/run\nruntime: {setup: [sh, evil.sh]}\n")
		}, "may not run a command"},
		"an unknown permission": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: d\nentrypoint: bin/run\npermissions: [camera]\n")
		}, "is not a permission"},
		"Orla's own folder": {func(dir string) {
			p.put(dir, "tool.yaml", "name: a\nversion: 1.0.0\ndescription: d\nentrypoint: bin/run\npermissions: ['filesystem:read:"+p.store.Dir+"/x']\n")
		}, "belongs to Orla itself"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := p.source("a", "1.0.0", "")
			c.change(dir)
			if err := p.install(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %s", err, c.want)
			}
			if p.serves() != "" || exists(p.store.Lock) || len(p.rest()) != 0 || exists(filepath.Join(p.store.Dir, "a")) {
				t.Errorf("something was changed: %v", p.rest())
			}
		})
	}
}

// Names are not taken from others (SPEC M4: case twins).
func TestM4Names(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	if err := p.install(p.source("Say", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "only in case") {
		t.Errorf("a case twin: %v", err)
	}
	p.put(p.store.Dir, "own/tool.yaml", "name: own\nversion: 1.0.0\ndescription: d\nentrypoint: run\n")
	if err := p.install(p.source("own", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "was not installed") {
		t.Errorf("over a tool of the user's: %v", err)
	}
	p.put(p.store.Dir, "mine/1.0.0/tool.yaml", "name: mine\n")
	if err := p.install(p.source("mine", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "was not installed by orla install") {
		t.Errorf("over a version of the user's: %v", err)
	}
	p.put(p.store.Dir, "file", "")
	if err := p.install(p.source("file", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("over a file: %v", err)
	}
	p.put(p.store.Dir, "zz.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: git_hub}\nspec: {transport: stdio, command: sh}\n")
	p.put(p.store.Dir, "deploy.sh", "#!/bin/sh\n")
	for name, more := range map[string]string{"git-hub": "runtime: {mode: capsule, handshake: mcp}\n", "Git.Hub": "runtime: {mode: capsule, handshake: mcp}\n", "DEPLOY": ""} {
		if err := p.install(p.source(name, "1.0.0", more)); err == nil || !strings.Contains(err.Error(), "rules of calls could not tell") {
			t.Errorf("%s, a name that rules give something to: %v", name, err)
		}
	}
	if err := p.install(p.source("git_hub", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "is a tool with this name already") {
		t.Errorf("the name of an McpServer: %v", err)
	}
	for _, name := range []string{"orla.lock", "node_modules", ".hidden", "tool.yaml", "fs__delete", "fs--delete", "fs_-delete", "fs_"} {
		if err := p.install(p.source(name, "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "is not a name for a package") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.do(func(s *packages.Session) error {
		_, err := s.Remove(p.Context(), "..", "")
		return err
	}); !errors.Is(err, packages.ErrNotInstalled) {
		t.Errorf("uninstall ..: %v", err)
	}
}

// steps lists the steps of one piece of work.
func (p *project) steps(what func(*packages.Session) error) (list []string) {
	p.Helper()
	p.store.Step = func(name string) error { list = append(list, name); return nil }
	p.must(p.do(what))
	p.store.Step = nil
	return list
}

// SPEC M4: whatever step fails, as on a full disk, everything is as it was, and the next one works.
func TestM4AFailureLeavesThePreviousState(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	next := p.source("say", "2.0.0", "")
	update := func(s *packages.Session) error { return installLocal(t.Context(), s, next) }
	uninstall := func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", "2.0.0"); return err }
	before, err := os.ReadFile(p.store.Lock)
	p.must(err)
	full := errors.New("no space left on device")
	for _, step := range p.steps(update) {
		p.must(p.do(uninstall))
		p.store.Step = func(name string) error {
			if name == step {
				return full
			}
			return nil
		}
		err := p.do(update)
		p.store.Step = nil
		if step == "sync the folders" { // it is done by then
			p.must(err)
			continue
		}
		lock, _ := os.ReadFile(p.store.Lock)
		if !errors.Is(err, full) || p.serves() != "1.0.0" || string(lock) != string(before) || len(p.rest()) != 0 {
			t.Errorf("at %q it fails with %v, and %q serves, with %v", step, err, p.serves(), p.rest())
		}
		p.must(p.do(update))
	}
	for _, step := range p.steps(uninstall) {
		p.must(p.do(update))
		p.store.Step = func(name string) error {
			if name == step {
				return full
			}
			return nil
		}
		err := p.do(uninstall)
		p.store.Step = nil
		if !errors.Is(err, full) || p.serves() != "2.0.0" {
			t.Errorf("uninstall at %q fails with %v, and %q serves", step, err, p.serves())
		}
		p.must(p.do(uninstall))
	}
}

// dieAt is what a process does that is killed.
func dieAt(what, step, dir, source string) {
	store := storeOf(dir)
	store.Step = func(name string) error {
		if name == strings.ReplaceAll(step, "_", " ") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
		return nil
	}
	s, err := store.Open(context.Background())
	if err != nil {
		panic(err)
	}
	if what == "install" {
		err = installLocal(context.Background(), s, source)
	} else {
		_, err = s.Remove(context.Background(), "say", "2.0.0")
	}
	fmt.Println("not killed:", err)
}

// SPEC M4: kill -9 at each step leaves what served before, and the next command cleans up.
func TestM4KilledAtEachStep(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	next := p.source("say", "2.0.0", "")
	update := func(s *packages.Session) error { return installLocal(t.Context(), s, next) }
	uninstall := func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", "2.0.0"); return err }
	kill := func(what, step string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), killVar+"="+strings.Join([]string{what, strings.ReplaceAll(step, " ", "_"), p.dir, next}, " "))
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s at %q: %v %s", what, step, err, out)
		}
	}
	for _, step := range p.steps(update) {
		p.must(p.do(uninstall))
		kill("install", step)
		want := "1.0.0"
		if step == "sync the folders" {
			want = "2.0.0"
		}
		if got := p.serves(); got != want {
			t.Errorf("killed at %q, %q serves; want %s", step, got, want)
		}
		p.must(p.do(func(*packages.Session) error { return nil })) // cleans up
		if left := p.rest(); len(left) != 0 || p.serves() != want {
			t.Errorf("killed at %q, %v is left, and %q serves", step, left, p.serves())
		}
		p.must(p.do(update))
		if got := p.serves(); got != "2.0.0" {
			t.Errorf("after %q and another install, %q serves", step, got)
		}
	}
	for _, step := range p.steps(uninstall) {
		p.must(p.do(update))
		kill("uninstall", step)
		p.must(p.do(func(*packages.Session) error { return nil }))
		if got := p.serves(); got != "2.0.0" || len(p.rest()) != 0 {
			t.Errorf("uninstall killed at %q: %q serves, and %v is left", step, got, p.rest())
		}
		p.must(p.do(uninstall))
	}
}

// SPEC M4: an install that is interrupted leaves nothing.
func TestM4InterruptedInstall(t *testing.T) {
	p := newProject(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.do(func(s *packages.Session) error { return installLocal(ctx, s, p.source("say", "1.0.0", "")) }); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if left := p.rest(); len(left) != 0 || exists(p.store.Lock) {
		t.Errorf("%v is left", left)
	}
}

// SPEC M4: a package beyond max_package is refused.
func TestM4TooLarge(t *testing.T) {
	p := newProject(t)
	p.store.Git.Limits = origin.Limits{Bytes: 50}
	if err := p.install(p.source("say", "1.0.0", "")); !errors.Is(err, origin.ErrTooLarge) || len(p.rest()) != 0 {
		t.Errorf("it ends with %v", err)
	}
}
