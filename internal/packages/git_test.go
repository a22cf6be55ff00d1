package packages_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/testing/needs"
)

// repository is a git repository of a package.
type repository struct {
	*project
	dir, url string
	key      string // the private key that signs tags; "" for none
}

func (p *project) repository() *repository {
	p.Helper()
	needs.Programs(p.T, "git")
	r := &repository{project: p, dir: filepath.Join(p.TempDir(), "say")}
	r.url = "file://" + r.dir
	p.must(os.MkdirAll(r.dir, 0o755)) //nolint:gosec // git reads it
	r.git("init", "--quiet", "--initial-branch=main")
	return r
}

func (r *repository) git(args ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "gpg.format=ssh", "-c", "user.signingkey=" + r.key}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("git %v: %v %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// release commits a version and tags it.
func (r *repository) release(version, tag, more string) {
	r.Helper()
	r.put(r.dir, "tool.yaml", "name: say\nversion: "+version+"\ndescription: it says its version\nentrypoint: bin/run\n"+more)
	r.put(r.dir, "bin/run", "#!/bin/sh\necho "+version+"\n")
	r.git("add", "-A")
	r.git("commit", "--quiet", "--allow-empty", "-m", version)
	if r.key != "" {
		r.git("tag", "-f", "-s", "-m", tag, tag)
	} else {
		r.git("tag", "-f", tag)
	}
}

// sign makes a key that signs from now on.
func (r *repository) sign() {
	r.Helper()
	needs.Programs(r.T, "ssh-keygen")
	r.key = filepath.Join(r.TempDir(), "key")
	if out, err := exec.CommandContext(r.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", r.key).CombinedOutput(); err != nil {
		r.Fatalf("%v %s", err, out)
	}
}

func (r *repository) install(change func(*packages.From)) error {
	r.Helper()
	return r.do(func(s *packages.Session) error {
		from := packages.From{URL: r.url}
		if change != nil {
			change(&from)
		}
		c, err := s.Git(r.Context(), from)
		if err != nil {
			return err
		}
		return c.Install(r.Context(), all)
	})
}

func ref(ref string) func(*packages.From) { return func(f *packages.From) { f.Ref = ref } }

func (r *repository) wants(err error, want string) {
	r.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		r.Errorf("%v; want %s", err, want)
	}
}

// RFC 3 §7.1, §7.3 and §8.1: latest is the highest stable version, an explicit tag is used as it is, and the tag must
// match the version of the manifest.
func TestRFC3S7_3AndS8_1Tags(t *testing.T) {
	p := newProject(t)
	r := p.repository()
	r.release("1.0.0-rc.1", "v1.0.0-rc.1", "")
	p.must(r.install(nil))
	if got := p.serves(); got != "1.0.0-rc.1" {
		t.Errorf("without a stable version %q is the latest", got)
	}
	r.release("0.9.0", "v0.9.0", "")
	r.release("2.0.0-rc.1", "v2.0.0-rc.1", "")
	r.release("3.0.0", "v3.1.0", "")
	r.wants(r.install(nil), "they must match")
	r.git("tag", "-d", "v3.1.0")
	p.must(r.install(ref("latest")))
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	if e := lock.Find("say", "0.9.0"); e == nil || e.Tag != "v0.9.0" || e.Commit != r.git("rev-parse", "v0.9.0") || !e.Unsigned || e.Source.URL != r.url {
		t.Errorf("the lock has %+v", e)
	}
	if got := p.serves(); got != "1.0.0-rc.1" {
		t.Errorf("%q serves, though a higher version is there", got)
	}
	p.must(r.install(ref("v2.0.0-rc.1")))
	if got := p.serves(); got != "2.0.0-rc.1" {
		t.Errorf("%q serves", got)
	}
	r.wants(r.install(ref("v9.9.9")), "v9.9.9")
	r.wants(r.install(func(f *packages.From) { f.Name = "other" }), "was asked for")
	p.must(r.install(ref(r.git("rev-parse", "v2.0.0-rc.1")))) // a commit
}

// SPEC M5: what the lock has is installed again exactly; a moved tag and a changed tree are refused.
func TestM5LockedInstalls(t *testing.T) {
	needs.Time(t, "runs git many times")
	p := newProject(t)
	r := p.repository()
	r.release("1.0.0", "v1.0.0", "permissions: [network]\n")
	p.must(r.install(nil))
	r.release("1.1.0", "v1.1.0", "")
	text, err := os.ReadFile(p.store.Lock)
	p.must(err)
	locked := func(agreed packages.Consent) error {
		return p.do(func(s *packages.Session) error {
			c, err := s.Locked(t.Context(), s.Lock.Packages[0])
			if err != nil {
				return err
			}
			return c.Install(p.Context(), agreed)
		})
	}
	p.must(os.RemoveAll(p.store.Dir)) // a fresh clone of the project
	if list, err := p.store.Verify(t.Context()); err != nil || len(list) != 1 || list[0].Problem != "it is not installed" {
		t.Errorf("verify says %v, %v", list, err)
	}
	if err := locked(packages.Consent{}); !errors.Is(err, packages.ErrConsent) { // who cloned it has not agreed to anything
		t.Errorf("without consent an install of the lock ends with %v", err)
	}
	p.must(locked(packages.Consent{Permissions: true}))
	if now, _ := os.ReadFile(p.store.Lock); string(now) != string(text) || p.serves() != "1.0.0" {
		t.Errorf("the lock is now\n%s\nand %q serves", now, p.serves())
	}
	run := filepath.Join(p.store.Dir, "say", "1.0.0", "bin", "run")
	p.must(os.WriteFile(run, []byte("#!/bin/sh\necho evil\n"), 0o755)) //nolint:gosec // it is run
	list, err := p.store.Verify(t.Context())
	if err != nil || !strings.Contains(list[0].Problem, "its files have changed") {
		t.Errorf("verify says %v, %v", list, err)
	}
	p.must(locked(packages.Consent{Permissions: true}))
	if list, err := p.store.Verify(t.Context()); err != nil || list[0].Problem != "" {
		t.Errorf("after an install of the lock verify says %v, %v", list, err)
	}
	if tools := p.found().Tools; len(tools) != 1 || !tools[0].Isolation.Grants.Network {
		t.Errorf("it has no network: %+v", tools)
	}
	less, err := lockfile.Read(p.store.Lock)
	p.must(err)
	less.Packages[0].Permissions = nil // somebody takes it away
	p.must(lockfile.Write(p.store.Lock, less))
	p.must(os.RemoveAll(p.store.Dir))
	p.must(locked(packages.Consent{}))
	if tools := p.found().Tools; len(tools) != 1 || tools[0].Isolation.Grants.Network {
		t.Errorf("it has more than the lock grants: %+v", tools)
	}
	p.must(os.WriteFile(p.store.Lock, text, 0o600))
	r.release("1.0.0", "v1.0.0", "permissions: [network, env:X]\n")
	p.must(os.RemoveAll(filepath.Join(p.store.Dir, "say")))
	r.wants(locked(all), "somebody moved it")
	r.wants(r.install(ref("v1.0.0")), "somebody moved it")
	if now, _ := os.ReadFile(p.store.Lock); string(now) != string(text) || exists(filepath.Join(p.store.Dir, "say")) {
		t.Errorf("something was changed: %s", now)
	}
	// Who changes the commit in the lock has to change the digest too.
	commit := r.git("rev-parse", "v1.0.0")
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	lock.Packages[0].Commit = commit
	p.must(lockfile.Write(p.store.Lock, lock))
	r.wants(locked(all), "the tree is not the one that the lock has")
	other := p.repository()
	other.release("2.0.0", "v2.0.0", "")
	r.wants(other.install(nil), "run orla uninstall say first")
}

// SPEC M6: the signer is remembered; another one, and a version without a signature, are refused unless that is
// accepted.
func TestM6Signers(t *testing.T) {
	needs.Time(t, "runs git many times")
	p := newProject(t)
	r := p.repository()
	r.sign()
	first := r.key
	r.release("1.0.0", "v1.0.0", "")
	p.must(r.install(nil))
	signer := func(version string) *lockfile.Package {
		t.Helper()
		lock, err := lockfile.Read(p.store.Lock)
		p.must(err)
		e := lock.Find("say", version)
		if e == nil {
			t.Fatalf("%s is not in the lock", version)
		}
		return e
	}
	public, err := os.ReadFile(first + ".pub")
	p.must(err)
	key := strings.Join(strings.Fields(string(public))[:2], " ")
	if got := signer("1.0.0"); got.Signer != key || got.Unsigned {
		t.Errorf("the signer is %q; want %q", got.Signer, key)
	}
	r.key = ""
	r.release("1.1.0", "v1.1.0", "")
	r.wants(r.install(nil), "is not signed, and it was signed by")
	r.wants(r.install(func(f *packages.From) { f.AcceptSigner = true }), "--unsigned accepts that")
	p.must(r.install(func(f *packages.From) { f.Unsigned = true }))
	if !signer("1.1.0").Unsigned {
		t.Error("the lock does not say that it is not signed")
	}
	r.sign()
	r.release("1.2.0", "v1.2.0", "")
	r.wants(r.install(nil), "--accept-signer accepts that")
	r.wants(r.install(func(f *packages.From) { f.Unsigned = true }), "--accept-signer accepts that")
	p.must(r.install(func(f *packages.From) { f.AcceptSigner = true }))
	r.key = first
	r.release("1.3.0", "v1.3.0", "")
	p.must(r.install(nil))
	r.key = ""
	r.release("1.4.0", "v1.4.0", "")
	r.wants(r.install(func(f *packages.From) { f.Signers, f.Unsigned = []string{key}, true }), "not signed as it must be")
}

// A folder that has the folder of tools in it is refused at the first time, and not only when it would be copied into itself.
func TestM3AFolderWithTheFolderOfTools(t *testing.T) {
	p := newProject(t)
	dir := p.source("say", "1.0.0", "")
	p.must(os.Symlink(dir, dir+"-link"))
	for _, where := range []string{filepath.Join(dir, "tools"), dir, filepath.Join(dir+"-link", "tools")} {
		p.store.Dir = where
		if err := p.install(dir); err == nil || !strings.Contains(err.Error(), "has the folder of tools in it") {
			t.Errorf("with the folder of tools at %s: %v", where, err)
		}
	}
	p.store.Dir = dir + "-tools"
	p.must(p.install(dir))
}

// SPEC M7: permissions have to be agreed to, those that cannot be enforced separately, and an update that asks for
// more asks again.
func TestM7Consent(t *testing.T) {
	p := newProject(t)
	install := func(dir string, agreed packages.Consent) (more, unenforced int, err error) {
		t.Helper()
		err = p.do(func(s *packages.Session) error {
			c, err := s.Local(t.Context(), dir)
			if err != nil {
				return err
			}
			more, unenforced = len(c.More), len(c.Unenforced)
			return c.Install(p.Context(), agreed)
		})
		return more, unenforced, err
	}
	dir := p.source("say", "1.0.0", "permissions: [env:A, 'network:example.com']\n")
	for _, agreed := range []packages.Consent{{}, {Permissions: true}, {Unenforced: true}} {
		if more, unenforced, err := install(dir, agreed); !errors.Is(err, packages.ErrConsent) || more != 2 || unenforced != 1 || p.serves() != "" {
			t.Errorf("with %+v: %d %d %v", agreed, more, unenforced, err)
		}
	}
	if _, _, err := install(dir, all); err != nil || p.serves() != "1.0.0" {
		t.Fatalf("%v, and %q serves", err, p.serves())
	}
	if more, unenforced, err := install(p.source("say", "1.1.0", "permissions: ['network:example.com']\n"), packages.Consent{}); err != nil || more+unenforced != 0 {
		t.Errorf("an update that asks for less: %d %d %v", more, unenforced, err)
	}
	if more, _, err := install(p.source("say", "1.2.0", "permissions: ['network:example.com', 'filesystem:read']\n"), packages.Consent{}); !errors.Is(err, packages.ErrConsent) || more != 1 || p.serves() != "1.1.0" {
		t.Errorf("an update that asks for more: %d %v, and %q serves", more, err, p.serves())
	}
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	if e := lock.Find("say", "1.0.0"); len(e.Permissions) != 2 || len(e.Unenforced) != 1 {
		t.Errorf("the lock has %+v", e)
	}
}

// SPEC M3: a server that Orla wrote a resource for is installed with its Secret, which uninstall removes; nothing else
// may be in it.
func TestM3ServersAndTheirSecrets(t *testing.T) {
	p := newProject(t)
	made := func(files map[string]string, version string) error {
		return p.do(func(s *packages.Session) error {
			c, err := s.Made(t.Context(), lockfile.Source{Kind: lockfile.Server, URL: "https://r.example.com", Server: "io.example/far"}, packages.From{Name: "far", Version: version}, func(dir string) error {
				for name, text := range files {
					p.put(dir, name, text)
				}
				return nil
			})
			if err != nil {
				return err
			}
			c.Secret = map[string]string{"header": "hunter2"}
			return c.Install(p.Context(), all)
		})
	}
	far := "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: far}\nspec: {transport: http, endpoint: 'https://example.com/mcp', auth: {profile: bearer, secretRef: 'packages/far:header'}}\n"
	for name, files := range map[string]map[string]string{
		"two servers": {"server.yaml": far, "other.yaml": strings.ReplaceAll(far, "far", "near")},
		"a rule":      {"server.yaml": far, "rule.yaml": "apiVersion: orloj.dev/v1\nkind: AgentRole\nmetadata: {name: r}\nspec: {permissions: [tool:x]}\n"},
		"a script":    {"server.yaml": far, "run": "#!/bin/sh\n"},
		"none":        {"server.yaml": "x: 1\n"},
	} {
		if err := made(files, "1.0.0"); err == nil {
			t.Errorf("%s: it is installed", name)
		}
	}
	p.must(made(map[string]string{"server.yaml": far}, "1.0.0"))
	found := p.found()
	if len(found.Tools) != 1 || found.Tools[0].Name != "far" || found.Tools[0].Runtime.Pin != "hold" || len(found.Secrets) != 1 {
		t.Errorf("it serves %+v", found)
	}
	secret := filepath.Join(p.store.Dir, "far", "secret.yaml")
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret: %v %v", info, err)
	}
	if text, _ := os.ReadFile(p.store.Lock); strings.Contains(string(text), "hunter2") {
		t.Error("the lock has the secret")
	}
	if err := made(map[string]string{"server.yaml": far}, "2.0.0"); err == nil || !strings.Contains(err.Error(), "only one version") {
		t.Errorf("a second version: %v", err)
	}
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "far", ""); return err }))
	if exists(filepath.Join(p.store.Dir, "far")) {
		t.Error("something is left of it")
	}
}
