package discovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/manifest"
)

var zero = "h1:" + strings.Repeat("A", 43) + "="

// project is a folder with an orla.yaml, a lock and tools.
type project struct {
	*testing.T
	dir  string
	lock lockfile.Lock
}

func newProject(t *testing.T) *project {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &project{T: t, dir: dir}
	p.configure("")
	return p
}

func (p *project) put(name, text string) {
	p.Helper()
	file := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil { //nolint:gosec // it may be run
		p.Fatal(err)
	}
}

func (p *project) configure(more string) { p.put("orla.yaml", "tools_dir: ./tools\n"+more) }

// add puts an installed package there, and changes its entry.
func (p *project) add(name, version, runtime string, change func(*lockfile.Package)) {
	p.Helper()
	at := "tools/" + name + "/" + version + "/"
	p.put(at+"tool.yaml", "name: "+name+"\nversion: "+version+"\ndescription: d\nentrypoint: run\n"+runtime)
	p.put(at+"run", "#!/bin/sh\necho "+version+"\n")
	entry := lockfile.Package{Name: name, Version: version, Source: lockfile.Source{Kind: lockfile.Local, URL: "/x"}, Digest: zero}
	if change != nil {
		change(&entry)
	}
	p.put(at+lockfile.RecordName, string(lockfile.RecordOf(entry).Text()))
	p.lock.Put(entry)
	p.write()
}

func (p *project) write() {
	p.Helper()
	if err := lockfile.Write(filepath.Join(p.dir, lockfile.Name), &p.lock); err != nil {
		p.Fatal(err)
	}
}

func (p *project) find() manifest.Result {
	p.Helper()
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		p.Fatal(err)
	}
	return discovery.Find(cfg, l.Home)
}

// tool is the tool with a name; nil if it is not served, and then why.
func (p *project) tool(name string) (*manifest.Tool, string) {
	p.Helper()
	found := p.find()
	var why []string
	for i := range found.Tools {
		if found.Tools[i].Name == name {
			return &found.Tools[i], ""
		}
	}
	for _, problem := range found.Problems {
		why = append(why, problem.Err.Error())
	}
	return nil, strings.Join(why, "\n")
}

// SPEC M7: each file that Orla's configuration names belongs to Orla itself.
func TestM7FilesOfOrlaItself(t *testing.T) {
	p := newProject(t)
	p.configure("log_file: " + p.dir + "/log\naudit_log: audit\nsocket: sock\ntool_k8s_kubeconfig: kube\ntracing: {headers_file: " + p.dir + "/headers}\nauth: {tokens: [{name: a, file: " + p.dir + "/token}]}\n" +
		"approvals: {webhook: {url: 'https://example.com/x', secret_file: " + p.dir + "/hook}}\n")
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	m := discovery.MachineOf(cfg, l.Home)
	for _, name := range []string{"log", "audit", "sock", "kube", "headers", "token", "hook", "orla.yaml", lockfile.Name} {
		if path := filepath.Join(p.dir, name); !slices.Contains(m.Private, path) {
			t.Errorf("%s is not one of %v", name, m.Private)
		}
	}
	p.configure("audit_log: journal\nsocket: none\n")
	if cfg, err = l.Load(); err != nil {
		t.Fatal(err)
	}
	for _, file := range discovery.MachineOf(cfg, l.Home).Private {
		if name := filepath.Base(file); name == "journal" || name == "none" {
			t.Errorf("%s is a file", file)
		}
	}
}

// SPEC M7: so does the kubeconfig that no setting names, if Orla reaches its cluster by it.
func TestM7TheUsualKubeconfig(t *testing.T) {
	p := newProject(t)
	home, l := os.Getenv("HOME"), &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	usual := filepath.Join(home, ".kube", "config")
	for text, want := range map[string][]string{
		"": nil, "tool_k8s_enabled: true\n": {usual}, "kubernetes: true\n": {usual}, "tool_k8s_enabled: true\ntool_k8s_kubeconfig: kube\n": {filepath.Join(p.dir, "kube")},
	} {
		for _, set := range []string{"", "/srv/one:/srv/two"} {
			t.Setenv("KUBECONFIG", set)
			p.configure(text)
			cfg, err := l.Load()
			if err != nil {
				t.Fatal(err)
			}
			want := want
			if set != "" && slices.Contains(want, usual) {
				want = []string{"/srv/one", "/srv/two"}
			}
			var got []string
			for _, path := range discovery.MachineOf(cfg, l.Home).Private {
				if path == usual || filepath.Dir(path) == "/srv" || filepath.Base(path) == "kube" {
					got = append(got, path)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q with KUBECONFIG=%s: %v, want %v", text, set, got, want)
			}
		}
	}
}

// SPEC M7: a relative path of a secret is one in the folder of orla.yaml, wherever Orla was started.
func TestM7SecretFilesOfOrlaThatAreRelative(t *testing.T) {
	p := newProject(t)
	t.Setenv("CREDENTIALS_DIRECTORY", p.dir+"/credentials")
	p.configure("tracing: {headers_file: headers}\napprovals: {webhook: {url: 'https://example.com/x', secret_file: ./hook}}\n" +
		"auth: {tokens: [{name: a, file: secrets/token}, {name: b, credential: of-b}], oauth: {issuer: 'https://login.example.com', public_url: 'https://orla.example.com', " +
		"console_client_id: x, console_client_secret_file: client}}\n")
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(p.dir))
	near, err := (&config.Loader{Path: filepath.Join(filepath.Base(p.dir), "orla.yaml"), Home: l.Home}).Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []*config.Loaded{cfg, near} {
		m := discovery.MachineOf(cfg, l.Home)
		for _, name := range []string{"headers", "hook", "secrets/token", "client", "credentials", "credentials/of-b"} {
			if path := filepath.Join(p.dir, name); !slices.Contains(m.Private, path) {
				t.Errorf("%s: %s is not one of %v", cfg.File, name, m.Private)
			}
		}
	}
	p.configure("auth: {oauth: {issuer: 'https://login.example.com', public_url: 'https://orla.example.com', console_client_id: x, console_client_secret_file: ~/client}}\n")
	if cfg, err = l.Load(); err != nil {
		t.Fatal(err)
	}
	if path := filepath.Join(l.Home, "client"); !slices.Contains(discovery.MachineOf(cfg, l.Home).Private, path) {
		t.Errorf("%s is not one of Orla's files", path)
	}
}

// SPEC M7: the folders of programs and of what they keep are those of PATH and of caches, however they are named.
func TestM7FoldersOfPrograms(t *testing.T) {
	p := newProject(t)
	t.Setenv("PATH", "/usr/bin::relative:"+p.dir+"/bin:"+p.dir+"/bin")
	t.Setenv("XDG_CACHE_HOME", p.dir+"/cache")
	t.Setenv("UV_CACHE_DIR", p.dir+"/uv")
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	got := discovery.MachineOf(cfg, l.Home).Programs
	for _, want := range []string{"/usr/bin", p.dir + "/bin", p.dir + "/cache", p.dir + "/uv"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not one of %v", want, got)
		}
	}
	if slices.ContainsFunc(got, func(path string) bool { return !filepath.IsAbs(path) || path == "/" }) {
		t.Errorf("they are %v", got)
	}
	p.add("writes", "1.0.0", "", func(e *lockfile.Package) { e.Permissions = []string{"filesystem:write:" + p.dir + "/bin"} })
	if got, why := p.tool("writes"); got != nil || !strings.Contains(why, "--accept-unenforced") {
		t.Errorf("a tool that can change programs is served: %s", why)
	}
}

// SPEC M7, N4 and R6: an installed package is sandboxed with what was granted, its definitions are held, and its
// dependencies are installed without scripts, whatever its manifest says.
func TestM7InstalledPackagesAreSandboxed(t *testing.T) {
	p := newProject(t)
	data := filepath.Join(p.dir, "data")
	p.add("plain", "1.0.0", "", nil)
	p.add("capsule", "1.0.0", "runtime: {mode: capsule, pin: off}\n", func(e *lockfile.Package) {
		e.Permissions = []string{"filesystem:write:" + data, "filesystem:read:~/docs", "network", "env:TOKEN"}
	})
	p.add("less", "1.0.0", "runtime: {isolation_mode: none}\n", nil)
	p.add("container", "1.0.0", "runtime: {isolation_mode: container, image: i, network: bridge}\n", nil)
	p.put("tools/own/tool.yaml", "name: own\nversion: 1.0.0\ndescription: d\nentrypoint: run\n")
	p.put("tools/own/run", "#!/bin/sh\n")
	for _, name := range []string{"plain", "less"} {
		got, why := p.tool(name)
		if got == nil || got.Isolation.Mode != manifest.IsolationSandboxed || got.Isolation.Terms.Backend != manifest.BackendNative || !got.Isolation.Grants.Empty() || !got.Run.Setup.NoScripts {
			t.Errorf("%s is %+v: %s", name, got, why)
		}
	}
	one, _ := p.tool("plain")
	two, _ := p.tool("less")
	if one == nil || two == nil || one.Run.Setup.Package == two.Run.Setup.Package || !strings.HasPrefix(one.Run.Setup.Package, "plain h1:") {
		t.Errorf("the packages' environments are those of %+v and %+v", one, two)
	}
	got, why := p.tool("capsule")
	if got == nil || got.Runtime.Pin != manifest.PinHold {
		t.Fatalf("the capsule is %+v: %s", got, why)
	}
	g := got.Isolation.Grants
	if !slices.Equal(g.Writes, []string{data}) || !slices.Equal(g.Reads, []string{filepath.Join(p.dir, "home", "docs")}) || !g.Network || !slices.Equal(g.Env, []string{"TOKEN"}) || !slices.Contains(g.Hides, filepath.Join(p.dir, "tools")) {
		t.Errorf("the capsule has %+v", g)
	}
	if got, why := p.tool("container"); got == nil || got.Isolation.Mode != manifest.IsolationContainer || got.Isolation.Network != "none" {
		t.Errorf("the container is %+v: %s", got, why)
	}
	if got, _ := p.tool("own"); got == nil || got.Isolation.Isolated() || got.Run.Setup.NoScripts {
		t.Errorf("the user's own tool is %+v", got)
	}
}

// SPEC M7: the operator has the last word.
func TestM7TheOperatorOverrides(t *testing.T) {
	p := newProject(t)
	p.add("a", "1.0.0", "runtime: {mode: capsule}\n", func(e *lockfile.Package) { e.Permissions = []string{"network"} })
	p.add("b", "1.0.0", "", nil)
	p.configure("packages:\n  - {name: a, source: /x, permissions: [env:X], pin: warn, scripts: true}\n  - {name: b, source: /x, isolation: none}\n")
	got, why := p.tool("a")
	if got == nil || got.Isolation.Grants.Network || !slices.Equal(got.Isolation.Grants.Env, []string{"X"}) || got.Runtime.Pin != manifest.PinWarn || got.Run.Setup.NoScripts {
		t.Errorf("a is %+v: %s", got, why)
	}
	if got, why := p.tool("b"); got == nil || got.Isolation.Isolated() {
		t.Errorf("b is %+v: %s", got, why)
	}
	p.configure("sandbox_backend: container\ntool_container_image: i\npackages:\n  - {name: a, source: /x, permissions: [network]}\n")
	if got, why := p.tool("a"); got == nil || !strings.Contains(got.Isolation.Terms.Refused, "native sandbox") {
		t.Errorf("in a container a is %+v: %s", got, why)
	}
}

// SPEC M7: an installed tool gets the secrets that were granted, from the Secret of its package. One that asks for others is not
// served. A tool of the user's own uses the Secret of its name.
func TestM7SecretsThatWereGranted(t *testing.T) {
	p := newProject(t)
	const asks = "runtime: {secret_env: [KEY]}\n"
	p.add("a", "1.0.0", asks, func(e *lockfile.Package) { e.Permissions = []string{"secret:KEY"} })
	p.add("b", "1.0.0", asks, func(e *lockfile.Package) { e.Permissions = []string{"network", "secret:KEYS"} })
	p.put("tools/own/tool.yaml", "name: own\nversion: 1.0.0\ndescription: d\nentrypoint: run\n"+asks)
	p.put("tools/own/run", "#!/bin/sh\n")
	for name, want := range map[string]string{"a": lockfile.Source{Kind: lockfile.Local, URL: "/x"}.SecretName("a"), "own": "own"} {
		if got, why := p.tool(name); got == nil || len(got.Run.SecretEnv) != 1 || got.Run.SecretEnv[0].Secret.Name != want {
			t.Errorf("%s is %+v: %s", name, got, why)
		}
	}
	if got, why := p.tool("b"); got != nil || !strings.Contains(why, "secret:KEY, which was not granted") {
		t.Errorf("b is %+v: %s", got, why)
	}
	p.configure("packages: [{name: b, source: /x, permissions: ['secret:KEY']}]\n")
	if got, why := p.tool("b"); got == nil {
		t.Errorf("with what the operator grants: %s", why)
	}
}

// SPEC M7: a package cannot choose more of Orla's memory and time than the operator lets packages have: neither max_output nor timeout.
// Who serves tools of their own chooses freely.
func TestM7LimitsOfAPackageAreTheOperators(t *testing.T) {
	p := newProject(t)
	greedy := "runtime: {max_output: 1000GiB, timeout: 10000h}\n"
	p.add("a", "1.0.0", greedy, nil)
	p.put("tools/own/tool.yaml", "name: own\nversion: 1.0.0\ndescription: d\nentrypoint: run\n"+greedy)
	p.put("tools/own/run", "#!/bin/sh\n")
	for _, c := range []struct {
		name, config string
		timeout      time.Duration
		output       int64
		warnings     int
	}{
		{"a", "", 30 * time.Second, 8 << 20, 2},
		{"own", "", 10000 * time.Hour, 1000 << 30, 2},
		{"a", "timeout: 1m\nmax_output: 1MiB\n", time.Minute, 1 << 20, 2},
		{"a", "packages: [{name: a, source: /x, timeout: 2h, max_output: 64MiB}]\n", 2 * time.Hour, 64 << 20, 2},
		{"a", "packages: [{name: a, source: /y, timeout: 2h, max_output: 64MiB}]\n", 30 * time.Second, 8 << 20, 2},
		{"a", "packages: [{name: a, source: /x, timeout: 20000h, max_output: 1000GiB}]\n", 10000 * time.Hour, 1000 << 30, 0},
	} {
		p.configure(c.config)
		got, why := p.tool(c.name)
		if got == nil {
			t.Fatalf("%s with %q is not served: %s", c.name, c.config, why)
		}
		warnings := 0
		for _, problem := range p.find().Problems {
			warnings += strings.Count(problem.Err.Error(), "which is the most for packages")
		}
		if got.Run.Timeout != c.timeout || got.Run.MaxOutput != c.output || warnings != c.warnings {
			t.Errorf("%s with %q: timeout %s, max_output %d, %d warnings", c.name, c.config, got.Run.Timeout, got.Run.MaxOutput, warnings)
		}
	}
}

// SPEC M7: what the operator gives a package holds for the one from where they said, and not for another of the same name.
func TestM7TheOperatorsWordIsAboutOneSource(t *testing.T) {
	p := newProject(t)
	p.add("a", "1.0.0", "", nil)
	for source, isolated := range map[string]bool{"/x": false, "/y": true} {
		p.configure("packages: [{name: a, source: " + source + ", isolation: none}]\n")
		if got, why := p.tool("a"); got == nil || got.Isolation.Isolated() != isolated {
			t.Errorf("with a word about %s, a is %+v: %s", source, got, why)
		}
	}
	p.configure("packages: [{name: a, permissions: []}]\n") // which only takes away
	if got, why := p.tool("a"); got == nil {
		t.Errorf("a is not served: %s", why)
	}
	for _, more := range []string{"isolation: none", "permissions: [network]", "scripts: true", "pin: off", "timeout: 1h", "max_output: 1GiB"} {
		p.configure("packages: [{name: a, " + more + "}]\n")
		l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
		if _, err := l.Load(); err == nil || !strings.Contains(err.Error(), "needs source") {
			t.Errorf("%s without a source: %v", more, err)
		}
	}
}

// SPEC M7 and D7: an installed capsule that leaves the prefix out has its own name before each of its tools, also if there is
// only one. One that is a tool by its manifest keeps its name, and one of the user's own is as it says.
func TestM7ToolsOfAnInstalledCapsuleHaveItsPrefix(t *testing.T) {
	p := newProject(t)
	capsule := "runtime: {mode: capsule, handshake: mcp}\n"
	p.add("a", "1.0.0", capsule, nil)
	p.add("b", "1.0.0", "runtime: {mode: capsule}\nmcp: {input_schema: {type: object}}\n", nil)
	p.put("tools/own/tool.yaml", "name: own\nversion: 1.0.0\ndescription: d\nentrypoint: run\n"+capsule)
	p.put("tools/own/run", "#!/bin/sh\n")
	for name, want := range map[string]string{"a": "a__", "b": "none", "own": "none"} {
		got, why := p.tool(name)
		if got == nil {
			t.Fatalf("%s is not served: %s", name, why)
		}
		prefix := "none"
		if got.Runtime.ToolPrefix != nil {
			prefix = *got.Runtime.ToolPrefix
		}
		if prefix != want {
			t.Errorf("the prefix of %s is %q, want %q", name, prefix, want)
		}
	}
}

// SPEC M7: what cannot be given as it was granted is not started.
func TestM7FailsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(p *project)
		want   string
	}{
		"no lock":         {func(p *project) { p.must(os.Remove(filepath.Join(p.dir, lockfile.Name))) }, "does not have a 1.0.0"},
		"not in the lock": {func(p *project) { p.lock.Remove("a", "1.0.0"); p.write() }, "does not have a 1.0.0"},
		"another digest":  {func(p *project) { p.lock.Packages[0].Digest = strings.Replace(zero, "AAA", "BBB", 1); p.write() }, "another digest"},
		"a broken lock":   {func(p *project) { p.put(lockfile.Name, "<<<<<<< HEAD\n") }, "cannot be read"},
		"no record":       {func(p *project) { p.must(os.Remove(filepath.Join(p.dir, "tools/a/1.0.0", lockfile.RecordName))) }, "has no record"},
		"a broken record": {func(p *project) { p.put("tools/a/1.0.0/"+lockfile.RecordName, "{") }, "cannot be read"},
		"another folder": {func(p *project) {
			p.must(os.Rename(filepath.Join(p.dir, "tools/a/1.0.0"), filepath.Join(p.dir, "tools/moved")))
		}, "is not in a folder of tools"},
		"a link":              {func(p *project) { p.must(os.Symlink("/etc", filepath.Join(p.dir, "data"))) }, "leads through a link"},
		"not accepted":        {func(p *project) { p.lock.Packages[0].Permissions = []string{"network:example.com"}; p.write() }, "cannot be enforced"},
		"all of the home":     {func(p *project) { p.lock.Packages[0].Permissions = []string{"filesystem:write:~"}; p.write() }, "cannot be enforced"},
		"a folder of Orla's":  {func(p *project) { p.lock.Packages[0].Permissions = []string{"filesystem:read:~/.orla/x"}; p.write() }, "belongs to Orla itself"},
		"a command for setup": {func(p *project) { p.add("a", "1.0.0", "runtime: {setup: [sh, x]}\n", nil) }, "may not run a command of its own"},
		"a secret for images": {func(p *project) {
			p.add("a", "1.0.0", "runtime: {isolation_mode: container, image: i, image_pull_secret: s}\n", nil)
		}, "may not use secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.add("a", "1.0.0", "", func(e *lockfile.Package) {
				e.Permissions = []string{"filesystem:read:" + filepath.Join(p.dir, "data", "x")}
			})
			if got, why := p.tool("a"); got == nil {
				t.Fatalf("it is not served before: %s", why)
			}
			c.damage(p)
			if got, why := p.tool("a"); got != nil || !strings.Contains(why, c.want) {
				t.Errorf("it is %v, %s; want %s", got, why, c.want)
			}
		})
	}
}

// SPEC M7: what an installed package brings below itself is not a tool of the user's own, and configures nothing, also if somebody
// stands in its folder. A copy of it says what it is, and no command that would remove something else.
func TestM7AnInstalledPackageIsNoProject(t *testing.T) {
	p := newProject(t)
	p.add("notes", "1.0.0", "", nil)
	at := "tools/notes/1.0.0/"
	p.put(at+"tools/inner", "#!/bin/sh\n# /// tool\n# description: d\n# ///\n")
	p.put(at+"orla.yaml", "tools_dir: ./tools\nsocket: none\n")
	p.must(os.Symlink(at+"tools", filepath.Join(p.dir, "link")))
	home := filepath.Join(p.dir, "home")
	for _, in := range []string{at, at + "tools", "link"} {
		t.Chdir(filepath.Join(p.dir, in))
		if nearest := lockfile.Nearest(filepath.Join(p.dir, in)); nearest != filepath.Join(p.dir, "orla.yaml") {
			t.Errorf("in %s the project is that of %s", in, nearest)
		}
		if _, err := os.Stat("orla.yaml"); err == nil {
			if cfg, err := (&config.Loader{Home: home}).Load(); err == nil || !strings.Contains(err.Error(), "came with the package") || cfg.File != "" {
				t.Errorf("in %s: %v", in, err)
			}
		}
		for _, dir := range []string{".", "tools", filepath.Join(p.dir, in)} {
			if _, err := os.Stat(filepath.Join(dir, "inner")); err != nil {
				continue
			}
			cfg, err := (&config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: home, Flags: []config.Setting{{Key: "tools_dir", Value: dir, Flag: "tools-dir"}}}).Load()
			p.must(err)
			if found := discovery.Find(cfg, home); len(found.Tools) > 0 || len(found.Problems) != 1 || !strings.Contains(found.Problems[0].Err.Error(), "was installed as notes 1.0.0") {
				t.Errorf("in %s --tools-dir %s serves %d tools: %v", in, dir, len(found.Tools), found.Problems)
			}
		}
	}
	p.must(os.CopyFS(filepath.Join(p.dir, "tools", "copy"), os.DirFS(filepath.Join(p.dir, at))))
	if _, why := p.tool("notes"); !strings.Contains(why, "tools/copy was installed as notes 1.0.0") || strings.Contains(why, "uninstall") {
		t.Errorf("a copy: %s", why)
	}
}

func (p *project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// RFC 3 §9.1 and §9.2: installed tools are found in TOOLS_DIR/NAME/VERSION, the highest version serves by default,
// and another one if the lock says so. A version that is not in the lock hides none that is.
func TestRFC3S9WhichVersionServes(t *testing.T) {
	p := newProject(t)
	p.add("a", "1.9.0", "", nil)
	p.add("a", "1.10.0", "", nil)
	serves := func(want string) {
		t.Helper()
		if got, why := p.tool("a"); got == nil || got.Version != want {
			t.Errorf("%v serves; want %s: %s", got, want, why)
		}
	}
	serves("1.10.0")
	p.lock.Use("a", "1.9.0")
	p.write()
	serves("1.9.0")
	p.lock.Remove("a", "1.10.0")
	p.write()
	serves("1.9.0") // the other folder has no grants
	p.lock.Put(lockfile.Package{Name: "a", Version: "2.0.0", Serves: true, Source: lockfile.Source{Kind: lockfile.Local}, Digest: zero})
	p.write()
	serves("1.9.0") // an install was killed before the rename
	if !slices.ContainsFunc(p.find().Problems, func(problem manifest.Problem) bool {
		return strings.Contains(problem.Err.Error(), "names a 2.0.0, which is not installed")
	}) {
		t.Error("nothing says that 2.0.0 is not there")
	}
}

// RFC 3 §9.1 and §9.3: the project's package hides the user's of the same name, and the manifest says how a tool is run.
func TestRFC3S9_1AndS9_3ProjectsAndModes(t *testing.T) {
	p := newProject(t)
	user := &project{T: t, dir: filepath.Join(p.dir, "home", ".orla")}
	user.add("a", "9.0.0", "", nil)
	user.add("b", "1.0.0", "runtime: {mode: capsule}\n", nil)
	p.add("a", "1.0.0", "", nil)
	if got, why := p.tool("a"); got == nil || got.Version != "1.0.0" || got.Kind != manifest.Simple {
		t.Errorf("a is %+v: %s", got, why)
	}
	if got, why := p.tool("b"); got == nil || got.Kind != manifest.Capsule || got.Isolation.Mode != manifest.IsolationSandboxed {
		t.Errorf("b is %+v: %s", got, why)
	}
}

// SPEC M8: while somebody replaces a version, its folder and the lock differ for a moment. Whoever looks then waits until
// they do not: a capsule that serves is not stopped. Without an install the difference is a fault at once.
func TestM8AVersionThatIsReplaced(t *testing.T) {
	p := newProject(t)
	p.add("say", "1.0.0", "runtime: {mode: capsule}\n", nil)
	p.put("tools/.orla/lock", "")
	before, other := *p.lock.Find("say", "1.0.0"), "h1:"+strings.Repeat("B", 43)+"="
	differ := func() {
		entry := before
		entry.Digest = other
		p.lock.Put(entry)
		p.write()
	}
	guard, err := os.Open(filepath.Join(p.dir, "tools", ".orla", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guard.Close() }() // it was only locked
	for what, end := range map[string]func(){
		"the folder follows": func() {
			entry := *p.lock.Find("say", "1.0.0")
			p.put("tools/say/1.0.0/"+lockfile.RecordName, string(lockfile.RecordOf(entry).Text()))
		},
		"the lock is set back": func() {
			p.lock.Put(before)
			p.write()
		},
	} {
		p.put("tools/say/1.0.0/"+lockfile.RecordName, string(lockfile.RecordOf(before).Text()))
		differ()
		if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
		cfg, err := l.Load()
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		found := discovery.Search{Stopped: func() error {
			if asked++; asked == 30 { // it is asked while it waits, too
				end()
			}
			return nil
		}}.Find(cfg, l.Home)
		if len(found.Tools) != 1 || len(found.Problems) > 0 {
			t.Errorf("%s: %d tools, %v", what, len(found.Tools), found.Problems)
		}
		if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_UN); err != nil {
			t.Fatal(err)
		}
	}
	p.put("tools/say/1.0.0/"+lockfile.RecordName, string(lockfile.RecordOf(before).Text()))
	differ()
	if got, why := p.tool("say"); got != nil || !strings.Contains(why, "another digest") {
		t.Errorf("it is served: %s", why)
	}
}

// RFC 3 §7.4 and §9.3: the manifest alone says how an installed tool is run. RFC 3 §9.1: one whose entrypoint is gone is not served.
func TestRFC3S7_4AndS9_3EachModeIsDetected(t *testing.T) {
	for runtime, want := range map[string]manifest.Kind{
		"":                            manifest.Simple,
		"runtime: {mode: simple}\n":   manifest.Simple,
		"runtime: {mode: capsule}\n":  manifest.Capsule,
		"runtime: {args: [--fast]}\n": manifest.Simple, // §7.4 says so; §9.3 would have it the other way
	} {
		p := newProject(t)
		p.add("a", "1.0.0", runtime, nil)
		if got, why := p.tool("a"); got == nil || got.Kind != want {
			t.Errorf("with %q it is %+v: %s", runtime, got, why)
		}
		if err := os.Remove(filepath.Join(p.dir, "tools", "a", "1.0.0", "run")); err != nil {
			t.Fatal(err)
		}
		if got, why := p.tool("a"); got != nil || !strings.Contains(why, "entrypoint") {
			t.Errorf("with %q and without its entrypoint it is %+v: %s", runtime, got, why)
		}
	}
}
