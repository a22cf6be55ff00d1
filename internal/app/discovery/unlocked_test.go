package discovery_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/manifest"
)

// nodeTools puts tools of Node there that need packages and have no lock.
func (p *project) nodeTools(n int) {
	p.Helper()
	for i := range n {
		dir := fmt.Sprintf("tools/t%d/", i)
		p.put(dir+"tool.yaml", fmt.Sprintf("name: t%d\nversion: 1.0.0\ndescription: d\nentrypoint: main.mjs\n", i))
		p.put(dir+"main.mjs", "#!/usr/bin/env node\n")
		p.put(dir+"package.json", `{"dependencies": {"acme": "1"}}`)
		p.age(dir + "package.json")
	}
}

// age gives a file a time at which it has not just been changed.
func (p *project) age(name string) {
	p.Helper()
	old := time.Now().Add(-time.Hour).Truncate(time.Hour)
	if err := os.Chtimes(filepath.Join(p.dir, name), old, old); err != nil {
		p.Fatal(err)
	}
}

// finder returns what searches, and remembers what it has read.
func (p *project) finder() func() manifest.Result {
	p.Helper()
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		p.Fatal(err)
	}
	var seen discovery.Seen
	return func() manifest.Result { return discovery.Search{Seen: &seen}.Find(cfg, l.Home) }
}

// SPEC R2, S1: a search tells of packages without a lock, and reads a package.json again only after it has changed.
func TestR2DeclarationsAreReadOnce(t *testing.T) {
	p := newProject(t)
	p.nodeTools(1)
	find := p.finder()
	warned := func() bool {
		found := find()
		if len(found.Tools) != 1 {
			t.Fatalf("found %+v", found)
		}
		return len(found.Problems) == 1 && strings.Contains(found.Problems[0].Err.Error(), "run npm install there")
	}
	if !warned() {
		t.Error("it does not tell of packages without a lock")
	}
	p.put("tools/t0/package.json", `{"dependencies": {/* 1234 */}} `) // as long
	p.age("tools/t0/package.json")
	if !warned() {
		t.Error("a file with the time and the size that it had is read again")
	}
	p.put("tools/t0/package.json", `{"dependencies": {}}`)
	if warned() {
		t.Error("a file that has changed is not read again")
	}
	p.put("tools/t0/package.json", `{"dependencies": {"acme": 1}}`)
	if !warned() {
		t.Error("a file that has just changed is not read again")
	}
	p.put("tools/t0/package-lock.json", "{}")
	if warned() {
		t.Error("it tells of packages that have a lock")
	}
}

// SPEC S1: another search for twice as many tools of Node costs twice as much.
func TestS1SearchesForToolsOfNode(t *testing.T) {
	costtest.Check(t, 100, func(n int) func() {
		p := newProject(t)
		p.nodeTools(n)
		find := p.finder()
		find()
		return func() {
			if found := find(); len(found.Problems) != n {
				t.Errorf("%d of %d tools have problems", len(found.Problems), n)
			}
		}
	})
}
