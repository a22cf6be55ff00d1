package packages_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/internal/testing/needs"
)

// aBundle is where the packages of these tests come from.
var aBundle = lockfile.Source{Kind: lockfile.Bundle, URL: "/downloads/say.mcpb"}

// asks is a package that asks for secrets.
func asks(version string, keys ...string) map[string]string {
	return map[string]string{
		"tool.yaml": "name: say\nversion: " + version + "\ndescription: it says its version\nentrypoint: run\nruntime: {secret_env: [" + strings.Join(keys, ", ") + "]}\n",
		"run":       "#!/bin/sh\n",
	}
}

// makes prepares a package that Orla makes.
func (p *project) makes(files, secret map[string]string) *packages.Candidate {
	p.Helper()
	c, err := p.open().Made(p.Context(), aBundle, packages.From{Name: "say"}, func(dir string) error {
		for name, text := range files {
			p.put(dir, name, text)
		}
		return nil
	})
	p.must(err)
	c.Secret = secret
	return c
}

// got are the secrets that the tool say gets as things are now, as KEY=value; "none" for one that is not there.
func (p *project) got() (list []string) {
	p.Helper()
	found := p.found()
	for _, t := range found.Tools {
		for _, one := range t.Run.SecretEnv {
			value := "none"
			for _, s := range found.Secrets {
				if v, has := s.Data[one.Secret.Key]; has && s.Namespace == one.Secret.Namespace && s.Name == one.Secret.Name {
					value = v.Reveal()
				}
			}
			list = append(list, one.Name+"="+value)
		}
	}
	return list
}

func (p *project) gets(when string, want ...string) {
	p.Helper()
	if got := p.got(); !slices.Equal(got, want) {
		p.Errorf("%s, the tool gets %v, want %v", when, got, want)
	}
}

func aKey(text string) map[string]string { return map[string]string{"KEY": text} }

// SPEC M7: what a package gets of secrets is agreed to, also by an update. They are those of its source: not one that the user
// has made for a tool of that name, nor that of a package from elsewhere.
func TestM7SecretsAreThoseOfASource(t *testing.T) {
	p := newProject(t)
	p.put(p.store.Dir, "secrets.yaml", "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: say, namespace: packages}\nspec: {stringData: {KEY: mine}}\n")
	if err := p.makes(asks("1.0.0", "KEY"), nil).Install(t.Context(), packages.Consent{}); !errors.Is(err, packages.ErrConsent) {
		t.Errorf("without consent: %v", err)
	}
	p.must(p.makes(asks("1.0.0"), nil).Install(t.Context(), packages.Consent{}))
	update := p.makes(asks("1.1.0", "KEY"), nil)
	if got := permission.Texts(update.More); !slices.Equal(got, []string{"secret:KEY"}) {
		t.Errorf("an update asks for %v more", got)
	}
	p.must(update.Install(t.Context(), all))
	p.gets("with a Secret for a tool of that name", "KEY=none")
	p.must(p.makes(asks("1.2.0", "KEY"), aKey("its own")).Install(t.Context(), packages.Consent{}))
	p.gets("with its own", "KEY=its own")
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	for i := range lock.Packages {
		lock.Packages[i].Source.URL = "/tmp/say.mcpb"
	}
	p.must(lockfile.Write(p.store.Lock, lock))
	p.gets("from elsewhere", "KEY=none")
}

// SPEC M7: a package names no secret that is not its own, and no more than somebody can read.
func TestM7SecretsThatAPackageNames(t *testing.T) {
	p := newProject(t)
	for more, want := range map[string]string{
		"permissions: ['secret:KEY']\n": "runtime.secret_env: [KEY]",
		"runtime: {secret_env: [" + strings.TrimSuffix(strings.Repeat("A, ", 1), ", ") + "]}\n":                    "",
		"runtime: {secret_env: [" + strings.Join(manyKeys(permission.Most), ", ") + "]}\n":                         "",
		"runtime: {secret_env: [" + strings.Join(manyKeys(permission.Most+1), ", ") + "]}\n":                       "asks for 33 permissions",
		"permissions: [network]\nruntime: {secret_env: [" + strings.Join(manyKeys(permission.Most), ", ") + "]}\n": "asks for 33 permissions",
	} {
		c, err := p.open().Local(t.Context(), p.source("say", "1.0.0", more))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %v", more, err)
		}
		if c != nil {
			c.Discard()
		}
	}
	server := lockfile.Source{Kind: lockfile.Server, URL: "https://r.example.com", Server: "io.example/far"}
	_, err := p.open().Made(t.Context(), server, packages.From{Name: "far", Version: "1.0.0"}, func(dir string) error {
		p.put(dir, "server.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: far}\nspec: {transport: http, endpoint: 'https://example.com/mcp', auth: {profile: bearer, secretRef: 'packages/near:header'}}\n")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "packages/near:header") {
		t.Errorf("the Secret of another: %v", err)
	}
}

func manyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, "K"+strings.Repeat("x", i))
	}
	return keys
}

// SPEC M8 and M4: an update that asks for other secrets does not take those away that the old version needs: neither if it is
// taken back, nor if it fails, nor if the old version is chosen again.
func TestM8SecretsOfTheVersionBefore(t *testing.T) {
	p := newProject(t)
	p.must(p.makes(asks("1.0.0", "KEY"), aKey("old")).Install(t.Context(), all))
	next := func() *packages.Candidate {
		return p.makes(asks("2.0.0", "KEY", "TOKEN"), map[string]string{"TOKEN": "t", "KEY": "new"})
	}
	c := next()
	p.must(c.Install(t.Context(), all))
	p.gets("after the update", "KEY=new", "TOKEN=t")
	p.must(c.TakeBack(t.Context()))
	p.gets("after it was taken back", "KEY=old")
	full := errors.New("no space left on device")
	for _, step := range []string{"write the secret", "write the lock", "make the folder", "move"} {
		p.store.Step = func(name string) error {
			if name == step {
				return full
			}
			return nil
		}
		if err := next().Install(t.Context(), all); !errors.Is(err, full) {
			t.Errorf("at %q it ends with %v", step, err)
		}
		p.store.Step = nil
		p.gets("after an error at "+step, "KEY=old")
	}
	p.must(p.makes(asks("2.0.0", "TOKEN"), map[string]string{"TOKEN": "t"}).Install(t.Context(), all))
	p.gets("after a good update", "TOKEN=t")
	p.must(p.do(func(s *packages.Session) error { return s.Use(t.Context(), "say", "1.0.0") }))
	p.gets("when the old version is chosen again", "KEY=old")
	p.must(p.makes(asks("2.0.0", "TOKEN"), map[string]string{"TOKEN": "other"}).Install(t.Context(), all))
	p.must(p.do(func(s *packages.Session) error { return s.Use(t.Context(), "say", "2.0.0") }))
	p.gets("after another answer for what is installed", "TOKEN=other")
}

// SPEC M7: Orla replaces and removes only a secret.yaml that it has written, whatever another one says.
func TestM7OwnSecretsBesideAPackage(t *testing.T) {
	p := newProject(t)
	dir := filepath.Join(p.store.Dir, "say")
	for _, mine := range []string{
		"apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: say, namespace: packages}\nspec: {stringData: {KEY: mine}}\n",
		"apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: say, namespace: packages-of-mine}\nspec: {stringData: {KEY: mine}}\n",
		"# not namespace: packages\n---\napiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: other}\nspec: {stringData: {KEY: mine}}\n",
	} {
		p.put(dir, "secret.yaml", mine)
		for _, secret := range []map[string]string{nil, aKey("new")} {
			err := p.makes(asks("1.0.0", "KEY"), secret).Install(t.Context(), all)
			text, _ := os.ReadFile(filepath.Join(dir, "secret.yaml"))
			if err == nil || !strings.Contains(err.Error(), "move it away") || string(text) != mine || exists(p.store.Lock) {
				t.Errorf("with %v it ends with %v, and the file is\n%s", secret, err, text)
			}
		}
	}
}

// SPEC M7: no secret goes into a file that git has already: a .gitignore does not hold for it.
func TestM7SecretsInAFileThatGitHas(t *testing.T) {
	needs.Programs(t, "git")
	p := newProject(t)
	file := filepath.Join(p.store.Dir, "say", "secret.yaml")
	p.must(p.makes(asks("1.0.0", "KEY"), aKey("public")).Install(t.Context(), all))
	text, err := os.ReadFile(file)
	p.must(err)
	r := &repository{project: p, dir: p.dir}
	r.git("init", "--quiet", "--initial-branch=main")
	r.git("add", "--force", "tools/say/secret.yaml")
	r.git("commit", "--quiet", "--message=x")
	err = p.makes(asks("1.1.0", "KEY"), aKey("s3cret")).Install(t.Context(), all)
	if err == nil || !strings.Contains(err.Error(), "git rm --cached") {
		t.Errorf("it ends with %v", err)
	}
	if now, _ := os.ReadFile(file); string(now) != string(text) {
		t.Errorf("the file is\n%s", now)
	}
	r.git("rm", "--quiet", "--cached", "tools/say/secret.yaml")
	p.must(p.makes(asks("1.1.0", "KEY"), aKey("s3cret")).Install(t.Context(), all))
	r.git("add", "--all")
	if staged := r.git("diff", "--cached"); strings.Contains(staged, "s3cret") {
		t.Errorf("git takes\n%s", staged)
	}
}

// SPEC M8: an update of a folder whose version stayed the same is taken back as any other, whoever installs something meanwhile.
func TestM8TakeBackOfTheSameVersion(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	before := p.lockText()
	c := p.brought("say", "1.0.0", "mcp: {title: changed}\n")
	defer c.Discard()
	p.must(c.Install(t.Context(), all))
	if title := p.found().Tools[0].Title; p.lockText() == before {
		t.Errorf("nothing has changed: %q", title)
	}
	p.must(p.install(p.source("other", "1.0.0", "")))
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(t.Context(), "other", ""); return err }))
	p.must(c.TakeBack(t.Context()))
	verified, err := p.store.Verify(t.Context())
	p.must(err)
	if p.lockText() != before || p.serves() != "1.0.0" || len(verified) != 1 || verified[0].Problem != "" {
		t.Errorf("it is %+v, with the lock\n%s", verified, p.lockText())
	}
	c.Discard()
	if rest := p.rest(); len(rest) != 0 {
		t.Errorf("%v is left", rest)
	}
}
