package packages_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
)

// made installs a package that Orla makes, with a Secret of values if there are any.
func (p *project) made(source lockfile.Source, from packages.From, files, secret map[string]string) error {
	p.Helper()
	return p.do(func(s *packages.Session) error {
		c, err := s.Made(p.Context(), source, from, func(dir string) error {
			for name, text := range files {
				p.put(dir, name, text)
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.Secret = secret
		return c.Install(p.Context(), packages.Consent{})
	})
}

// aSecret is what the Secret of a package has.
var aSecret = map[string]string{"KEY": "hunter2"}

// SPEC M5 and M7: a package from another source does not take over a name, what was granted to it, and its secrets,
// whatever kind of source both have.
func TestM7AnotherSourceDoesNotTakeOverAName(t *testing.T) {
	tool := func(version, more string) map[string]string {
		return map[string]string{"tool.yaml": "name: say\nversion: " + version + "\ndescription: it says its version\nentrypoint: run\n" + more, "run": "#!/bin/sh\n"}
	}
	server := lockfile.Source{Kind: lockfile.Server, URL: "https://r.example.com", Registry: "https://r.example.com", Server: "io.example/say"}
	bundle := lockfile.Source{Kind: lockfile.Bundle, URL: "/downloads/say.mcpb"}
	ofServer := server
	ofServer.Kind = lockfile.Bundle
	for name, c := range map[string]struct {
		before, after lockfile.Source
		same          bool
	}{
		"another bundle":                   {before: bundle, after: lockfile.Source{Kind: lockfile.Bundle, URL: "/tmp/say.mcpb"}},
		"the same bundle":                  {before: bundle, after: bundle, same: true},
		"a folder after a bundle":          {before: bundle, after: lockfile.Source{Kind: lockfile.Local, URL: "/downloads/say.mcpb"}},
		"another folder":                   {before: lockfile.Source{Kind: lockfile.Local, URL: "/a"}, after: lockfile.Source{Kind: lockfile.Local, URL: "/b"}},
		"a repository after a folder":      {before: lockfile.Source{Kind: lockfile.Local, URL: "/a"}, after: lockfile.Source{Kind: lockfile.Git, URL: "https://example.com/say"}},
		"another repository":               {before: lockfile.Source{Kind: lockfile.Git, URL: "https://example.com/say"}, after: lockfile.Source{Kind: lockfile.Git, URL: "https://example.org/say"}},
		"another server of the registry":   {before: server, after: lockfile.Source{Kind: lockfile.Server, URL: server.URL, Registry: server.URL, Server: "io.evil/say"}},
		"its name in another registry":     {before: server, after: lockfile.Source{Kind: lockfile.Server, URL: "https://x.example.com", Registry: "https://x.example.com", Server: "io.example/say"}},
		"the same server, now as a bundle": {before: server, after: ofServer, same: true},
		"another server's bundle":          {before: ofServer, after: lockfile.Source{Kind: lockfile.Bundle, URL: server.URL, Registry: server.URL, Server: "io.evil/say"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.must(p.made(c.before, packages.From{Name: "say"}, tool("1.0.0", ""), aSecret))
			before, err := os.ReadFile(p.store.Lock)
			p.must(err)
			err = p.made(c.after, packages.From{Name: "say"}, tool("2.0.0", ""), nil)
			lock, readErr := os.ReadFile(p.store.Lock)
			p.must(readErr)
			switch {
			case c.same && err != nil:
				t.Errorf("it is refused: %v", err)
			case !c.same && (err == nil || !strings.Contains(err.Error(), "run orla uninstall say first") || string(lock) != string(before)):
				t.Errorf("it ends with %v and the lock\n%s", err, lock)
			}
		})
	}
}

// SPEC M7: what was granted to a name that was uninstalled, and its Secret, are not there for the next package of that
// name. Neither is a Secret whose package is not in the lock.
func TestM7ANameStartsAgainWithoutSecrets(t *testing.T) {
	p := newProject(t)
	source := lockfile.Source{Kind: lockfile.Bundle, URL: "/downloads/say.mcpb"}
	files := map[string]string{"tool.yaml": "name: say\nversion: 1.0.0\ndescription: it says its version\nentrypoint: run\n", "run": "#!/bin/sh\n"}
	secret := filepath.Join(p.store.Dir, "say", "secret.yaml")
	p.must(p.made(source, packages.From{Name: "say"}, files, aSecret))
	p.must(p.made(source, packages.From{Name: "say"}, files, nil))
	if !exists(secret) {
		t.Error("the package has lost its Secret")
	}
	ignore := filepath.Join(p.store.Dir, "say", ".gitignore")
	if text, err := os.ReadFile(ignore); err != nil || string(text) != "/secret.yaml\n/.gitignore\n" {
		t.Errorf("git takes the Secret: %s %v", text, err)
	}
	p.must(os.Remove(p.store.Lock)) // as with another branch of the project
	p.must(os.RemoveAll(filepath.Join(p.store.Dir, "say", "1.0.0")))
	p.must(p.install(p.source("say", "2.0.0", "")))
	if exists(secret) || exists(ignore) {
		t.Error("a package from elsewhere has the Secret of the one before")
	}
}

// SPEC M7: a file of the user's own where the Secret of a package belongs is neither replaced nor removed, and a .gitignore of
// the user's own keeps git from taking the Secret too.
func TestM7FilesOfTheUserBesideAPackage(t *testing.T) {
	p := newProject(t)
	source := lockfile.Source{Kind: lockfile.Bundle, URL: "/downloads/say.mcpb"}
	files := map[string]string{"tool.yaml": "name: say\nversion: 1.0.0\ndescription: it says its version\nentrypoint: run\n", "run": "#!/bin/sh\n"}
	dir := filepath.Join(p.store.Dir, "say")
	text := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		p.must(err)
		return string(text)
	}
	const mine = "kind: Secret\nmetadata: {name: mine}\n"
	p.put(dir, "secret.yaml", mine)
	for _, secret := range []map[string]string{nil, aSecret} {
		err := p.made(source, packages.From{Name: "say"}, files, secret)
		if err == nil || !strings.Contains(err.Error(), "say/secret.yaml is there") || text("secret.yaml") != mine || exists(p.store.Lock) {
			t.Errorf("with the Secret %v: %v", secret, err)
		}
	}
	p.must(os.Remove(filepath.Join(dir, "secret.yaml")))
	p.put(dir, ".gitignore", "*.pyc\n!secret.yaml")
	for range 2 {
		p.must(p.made(source, packages.From{Name: "say"}, files, aSecret))
		if got := text(".gitignore"); got != "*.pyc\n!secret.yaml\n/secret.yaml\n" {
			t.Errorf("the .gitignore has %q", got)
		}
	}
	p.put(dir, "secret.yaml", mine)
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }))
	if text("secret.yaml") != mine || exists(filepath.Join(dir, "1.0.0")) {
		t.Error("an uninstall has removed the user's file, or not the package")
	}
}

// SPEC M4: uninstall moves only folders that were installed, whatever the lock has.
func TestM4UninstallMovesOnlyWhatWasInstalled(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	p.must(p.install(p.source("say", "2.0.0", "")))
	dir := filepath.Join(p.store.Dir, "say", "1.0.0")
	p.must(os.Remove(filepath.Join(dir, lockfile.RecordName)))
	for _, version := range []string{"1.0.0", ""} {
		err := p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", version); return err })
		if err == nil || !strings.Contains(err.Error(), "remove it yourself") || !exists(filepath.Join(dir, "tool.yaml")) || p.serves() != "2.0.0" {
			t.Errorf("uninstall of %q ends with %v, and %q serves", version, err, p.serves())
		}
	}
	p.must(os.RemoveAll(dir))
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }))
	if exists(filepath.Join(p.store.Dir, "say")) {
		t.Error("something is left of it")
	}
}

// SPEC M4: a lock that somebody else wrote removes no file and no link of a package's name, whatever is done.
func TestM4NoLockRemovesAFile(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	file, link := filepath.Join(p.store.Dir, "id_ed25519"), filepath.Join(p.store.Dir, "mine")
	p.put(p.store.Dir, "id_ed25519", "a key")
	p.must(os.Symlink("nowhere", link))
	text, err := os.ReadFile(p.store.Lock)
	p.must(err)
	_, entry, _ := strings.Cut(string(text), "packages:\n")
	for _, name := range []string{"id_ed25519", "mine"} {
		text = append(text, strings.Replace(entry, "name: say", "name: "+name, 1)...)
	}
	p.must(os.WriteFile(p.store.Lock, text, 0o600))
	stays := func(after string) {
		t.Helper()
		for _, path := range []string{file, link} {
			if _, err := os.Lstat(path); err != nil {
				t.Fatalf("after %s: %v", after, err)
			}
		}
	}
	p.must(p.do(func(*packages.Session) error { return nil }))
	stays("a look")
	for _, name := range []string{"id_ed25519", "mine"} {
		if err := p.install(p.source(name, "1.0.0", "")); err == nil {
			t.Errorf("%s was installed, though there is a file of that name", name)
		}
		stays("an install")
	}
	for _, name := range []string{"id_ed25519", "mine"} {
		_ = p.do(func(s *packages.Session) error { _, err := s.Remove(t.Context(), name, ""); return err })
		stays("an uninstall")
	}
}

// SPEC M4: nothing is written to, moved to or removed from where a link of a package's name leads, which a repository can have.
func TestM4NoLinkOfANameIsFollowed(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	elsewhere := filepath.Join(p.dir, "elsewhere")
	p.put(elsewhere, "secret.yaml", "mine")
	old := filepath.Join(p.store.Dir, ".orla", "old-say@1.0.0")
	p.must(errors.Join(os.Rename(filepath.Join(p.store.Dir, "say", "1.0.0"), old), os.Remove(filepath.Join(p.store.Dir, "say")),
		os.Symlink("../elsewhere", filepath.Join(p.store.Dir, "say"))))
	look := func(after string) {
		t.Helper()
		entries, err := os.ReadDir(elsewhere)
		p.must(err)
		text, err := os.ReadFile(filepath.Join(elsewhere, "secret.yaml"))
		if err != nil || string(text) != "mine" || len(entries) != 1 {
			t.Fatalf("after %s: %q, %v, and %v are there", after, text, err, entries)
		}
	}
	p.must(p.do(func(*packages.Session) error { return nil }))
	look("a look")
	if err := p.install(p.source("say", "1.0.0", "")); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("an install: %v", err)
	}
	look("an install")
	err := p.do(func(s *packages.Session) error {
		c, err := s.Locked(t.Context(), s.Lock.Packages[0])
		if err != nil {
			return err
		}
		return c.Install(t.Context(), packages.Consent{})
	})
	if err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("an install of what the lock has: %v", err)
	}
	look("an install of what the lock has")
	err = p.do(func(s *packages.Session) error { _, err := s.Remove(t.Context(), "say", ""); return err })
	if err == nil || !strings.Contains(err.Error(), "is not a folder but a link") {
		t.Errorf("an uninstall: %v", err)
	}
	look("an uninstall")
	p.must(os.Remove(p.store.Lock)) // so it is the first of its name, and removes the secret of another
	if err := p.install(p.source("say", "1.0.0", "")); err == nil {
		t.Error("it was installed")
	}
	look("a first install")
}

// SPEC M4, M5: a link in the place of a version is said by verify, and neither followed, replaced nor removed.
func TestM4NoLinkOfAVersionIsFollowed(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	dir, elsewhere := filepath.Join(p.store.Dir, "say", "1.0.0"), filepath.Join(p.dir, "elsewhere")
	p.must(errors.Join(os.Rename(dir, elsewhere), os.Symlink("../../elsewhere", dir)))
	const want = "is not a folder but a link"
	list, err := p.store.Verify(t.Context())
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Problem, want) {
		t.Errorf("verify says %v, %v", list, err)
	}
	for what, do := range map[string]func(s *packages.Session) error{
		"an uninstall": func(s *packages.Session) error { _, err := s.Remove(t.Context(), "say", ""); return err },
		"an install": func(s *packages.Session) error {
			c, err := s.Local(t.Context(), p.source("say", "1.0.0", ""))
			if err != nil {
				return err
			}
			return c.Install(t.Context(), packages.Consent{})
		},
		"an install of what the lock has": func(s *packages.Session) error {
			c, err := s.Locked(t.Context(), s.Lock.Packages[0])
			if err != nil {
				return err
			}
			return c.Install(t.Context(), packages.Consent{})
		},
		"the choice of the version": func(s *packages.Session) error { return s.Use(t.Context(), "say", "1.0.0") },
	} {
		if err := p.do(do); err == nil {
			t.Errorf("%s succeeds", what)
		} else if !strings.Contains(err.Error(), want) && !strings.HasPrefix(what, "the choice") {
			t.Errorf("%s: %v", what, err)
		}
		if target, err := os.Readlink(dir); err != nil || target != "../../elsewhere" || !exists(filepath.Join(elsewhere, lockfile.RecordName)) {
			t.Fatalf("after %s: the link leads to %q, %v", what, target, err)
		}
	}
}

// SPEC S2: what is in the place of the lock of installs is neither waited for nor followed.
func TestS2WhatIsInPlaceOfTheLockOfInstalls(t *testing.T) {
	p := newProject(t)
	lock, made := filepath.Join(p.store.Dir, ".orla", "lock"), filepath.Join(p.dir, "made")
	p.must(os.MkdirAll(filepath.Dir(lock), 0o750))
	for what, put := range map[string]func() error{
		"link": func() error { return os.Symlink(made, lock) },
		"FIFO": func() error { return syscall.Mkfifo(lock, 0o600) },
	} {
		p.must(put())
		if _, err := p.store.Open(t.Context()); err == nil || !strings.Contains(err.Error(), lock) {
			t.Errorf("a %s: %v", what, err)
		}
		p.must(os.Remove(lock))
	}
	if exists(made) {
		t.Error("the target of the link was made")
	}
}

// SPEC M3 and M7: that a server is elsewhere has to be agreed to, and a registry elsewhere cannot name one on this machine
// or in a local network.
func TestM7RemoteServersAreAgreedTo(t *testing.T) {
	far := "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: far}\nspec: {transport: http, endpoint: 'https://HOST/mcp'}\n"
	install := func(p *project, registry, host string, agreed packages.Consent) error {
		source := lockfile.Source{Kind: lockfile.Server, URL: registry, Registry: registry, Server: "io.example/far"}
		return p.do(func(s *packages.Session) error {
			c, err := s.Made(t.Context(), source, packages.From{Name: "far", Version: "1.0.0"}, func(dir string) error {
				p.put(dir, "server.yaml", strings.ReplaceAll(far, "HOST", host))
				return nil
			})
			if err != nil {
				return err
			}
			return c.Install(p.Context(), agreed)
		})
	}
	const elsewhere = "https://r.example.com"
	p := newProject(t)
	if err := install(p, elsewhere, "mcp.example.com", packages.Consent{}); !errors.Is(err, packages.ErrConsent) || exists(p.store.Lock) {
		t.Errorf("without consent it ends with %v", err)
	}
	p.must(install(p, elsewhere, "MCP.example.com:8443", packages.Consent{Permissions: true}))
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	if got := lock.Serving("far").Permissions; !slices.Equal(got, []string{"remote:mcp.example.com:8443"}) || len(p.found().Tools) != 1 {
		t.Errorf("it was granted %v, and there is %+v", got, p.found())
	}
	p.put(filepath.Join(p.store.Dir, "far", "1.0.0"), "server.yaml", strings.ReplaceAll(far, "HOST", "other.example.com"))
	if found := p.found(); len(found.Tools) != 0 {
		t.Errorf("another host than that which was granted is served: %+v", found.Tools)
	}
	for _, host := range []string{
		"127.0.0.1:8443", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]:8443", "[fd00::1]", "localhost",
		"localhost.", "a.localhost", "localhost.localdomain", "printer", "printer.local", "metadata.google.internal", "host.docker.internal", "router.lan", "router.home.arpa",
	} {
		if err := install(newProject(t), elsewhere, host, all); err == nil {
			t.Errorf("a registry elsewhere may name a server at %s", host)
		}
	}
	p.must(install(newProject(t), "http://127.0.0.1:8080", "127.0.0.1:8443", all))
	q := newProject(t)
	if err := q.install(q.source("say", "1.0.0", "permissions: ['remote:mcp.example.com']\n")); err == nil {
		t.Error("a tool may ask for what is a remote server's")
	}
}

// SPEC M7 and D7: the tools of a package cannot have names that begin like those of another capsule.
func TestM7ToolPrefixesOfPackages(t *testing.T) {
	p := newProject(t)
	capsule := func(prefix string) string {
		return "runtime: {mode: capsule, handshake: mcp, tool_prefix: '" + prefix + "'}\n"
	}
	for _, prefix := range []string{"bank__", "", "say_"} {
		if err := p.install(p.source("say", "1.0.0", capsule(prefix))); err == nil || !strings.Contains(err.Error(), "runtime.tool_prefix") {
			t.Errorf("with the prefix %q it ends with %v", prefix, err)
		}
	}
	p.must(p.install(p.source("say", "1.0.0", capsule("say__"))))
	p.put(filepath.Join(p.store.Dir, "say", "1.0.0"), "tool.yaml", "name: say\nversion: 1.0.0\ndescription: it says\nentrypoint: bin/run\n"+capsule("bank__"))
	if found := p.found(); len(found.Tools) != 0 {
		t.Errorf("it is served: %+v", found.Tools)
	}
}

// SPEC M4: on a full disk a package can be uninstalled: its files make room for the lock.
func TestM4UninstallOnAFullDisk(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	dir := filepath.Join(p.store.Dir, "say")
	p.store.Step = func(name string) error {
		if left, err := filepath.Glob(filepath.Join(p.store.Dir, ".orla", "old-*")); name == "write the lock" && (len(left) > 0 || err != nil) {
			return &os.PathError{Op: "write", Path: p.store.Lock, Err: syscall.ENOSPC}
		}
		return nil
	}
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }))
	lock, err := lockfile.Read(p.store.Lock)
	if err != nil || len(lock.Packages) != 0 || exists(dir) || len(p.rest()) != 0 {
		t.Errorf("the lock has %+v, %v, and %v is left", lock, err, p.rest())
	}
	p.store.Step = nil
	p.must(p.install(p.source("say", "1.0.0", "")))
	p.store.Step = func(name string) error {
		if name == "write the lock" {
			return syscall.ENOSPC // of others, too
		}
		return nil
	}
	err = p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err })
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "its files were removed") || p.serves() != "" || exists(filepath.Join(dir, "1.0.0")) {
		t.Errorf("it ends with %v, and %q serves", err, p.serves())
	}
	p.store.Step = nil
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(p.Context(), "say", ""); return err }))
}

// SPEC M7: nobody reads a long list of permissions, so a package may not have one.
func TestM7LongListsOfPermissions(t *testing.T) {
	p := newProject(t)
	list := func(n int) string {
		var text strings.Builder
		text.WriteString("permissions:\n")
		for i := range n {
			fmt.Fprintf(&text, "  - filesystem:read:/srv/%d\n", i)
		}
		return text.String()
	}
	programs := "dependencies: [" + strings.Repeat("node>=1,", 33) + "]\n"
	if err := p.install(p.source("say", "1.0.0", programs)); err == nil || !strings.Contains(err.Error(), "names 33 programs, and a package may name at most 32") {
		t.Errorf("%v", err)
	}
	if err := p.install(p.source("say", "1.0.0", list(33))); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("it ends with %v", err)
	}
	p.must(p.install(p.source("say", "1.0.0", list(32))))
}

// SPEC M7: what a registry elsewhere names cannot have its image on this machine either, if it is a bundle with a tool.yaml of its own.
func TestM7BundlesOfARegistryNameNoImageHere(t *testing.T) {
	p := newProject(t)
	files := map[string]string{
		"tool.yaml": "name: say\nversion: 1.0.0\ndescription: it says its version\nentrypoint: run\nruntime: {isolation_mode: container, image: '127.0.0.1:5000/a/b:1'}\n", "run": "#!/bin/sh\n",
	}
	far := lockfile.Source{Kind: lockfile.Bundle, URL: "https://registry.example.com", Server: "com.example/say"}
	if err := p.made(far, packages.From{Name: "say"}, files, nil); err == nil || !strings.Contains(err.Error(), "may be on this machine or next to it") {
		t.Errorf("of a registry elsewhere: %v", err)
	}
	p.must(p.made(lockfile.Source{Kind: lockfile.Bundle, URL: "/downloads/say.mcpb"}, packages.From{Name: "say"}, files, nil))
}
