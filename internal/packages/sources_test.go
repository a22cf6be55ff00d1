package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
)

// made installs a package that Orla makes, with a Secret if secret is not empty.
func (p *project) made(source lockfile.Source, from packages.From, files map[string]string, secret string) error {
	p.Helper()
	return p.do(func(s *packages.Session) error {
		c, err := s.Made(source, from, func(dir string) error {
			for name, text := range files {
				p.put(dir, name, text)
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.Secret = []byte(secret)
		return c.Install(packages.Consent{})
	})
}

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
			p.must(p.made(c.before, packages.From{Name: "say"}, tool("1.0.0", ""), "kind: Secret\n"))
			before, err := os.ReadFile(p.store.Lock)
			p.must(err)
			err = p.made(c.after, packages.From{Name: "say"}, tool("2.0.0", ""), "")
			lock, readErr := os.ReadFile(p.store.Lock)
			p.must(readErr)
			switch {
			case c.same && err != nil:
				t.Errorf("it is refused: %v", err)
			case !c.same && (err == nil || !strings.Contains(err.Error(), "orla uninstall say comes first") || string(lock) != string(before)):
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
	p.must(p.made(source, packages.From{Name: "say"}, files, "kind: Secret\n"))
	p.must(p.made(source, packages.From{Name: "say"}, files, ""))
	if !exists(secret) {
		t.Error("the package has lost its Secret")
	}
	p.must(os.Remove(p.store.Lock)) // as with another branch of the project
	p.must(os.RemoveAll(filepath.Join(p.store.Dir, "say", "1.0.0")))
	p.must(p.install(p.source("say", "2.0.0", "")))
	if exists(secret) {
		t.Error("a package from elsewhere has the Secret of the one before")
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
		err := p.do(func(s *packages.Session) error { _, err := s.Remove("say", version); return err })
		if err == nil || !strings.Contains(err.Error(), "remove it yourself") || !exists(filepath.Join(dir, "tool.yaml")) || p.serves() != "2.0.0" {
			t.Errorf("uninstall of %q ends with %v, and %q serves", version, err, p.serves())
		}
	}
	p.must(os.RemoveAll(dir))
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove("say", ""); return err }))
	if exists(filepath.Join(p.store.Dir, "say")) {
		t.Error("something is left of it")
	}
}
