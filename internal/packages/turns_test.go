package packages_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
)

// open opens a Session that stays.
func (p *project) open() *packages.Session {
	p.Helper()
	s, err := p.store.Open(p.Context())
	p.must(err)
	return s
}

// brought is a package that was fetched, and is not installed.
func (p *project) brought(name, version, more string) *packages.Candidate {
	p.Helper()
	c, err := p.open().Local(p.Context(), p.source(name, version, more))
	p.must(err)
	return c
}

// lockText is the text of the lock.
func (p *project) lockText() string {
	text, _ := os.ReadFile(p.store.Lock) // "" for none
	return string(text)
}

// SPEC M4: two changes at once wait for each other; whoever waits can be interrupted, and is told for whom.
func TestM4ConcurrentInstallsWait(t *testing.T) {
	p := newProject(t)
	first, other := p.brought("other", "1.0.0", ""), p.brought("say", "1.0.0", "")
	waits, writes, goOn, done := make(chan int, 3), make(chan bool), make(chan bool), make(chan error)
	slow := p.store
	slow.Step = func(name string) error {
		if name == "write the lock" {
			writes <- true
			<-goOn
		}
		return nil
	}
	s, err := slow.Open(t.Context())
	p.must(err)
	again, err := s.Local(t.Context(), filepath.Join(p.sources, "other"))
	p.must(err)
	first.Discard()
	go func() { done <- again.Install(t.Context(), all) }()
	<-writes
	p.store.Waiting = func(process int) { waits <- process }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.store.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("who is interrupted gets %v", err)
	}
	if process := <-waits; process != os.Getpid() {
		t.Errorf("who waits is told of process %d", process)
	}
	second := make(chan error)
	go func() { second <- other.Install(t.Context(), all) }()
	goOn <- true
	p.must(<-done)
	p.must(<-second)
	lock, err := lockfile.Read(p.store.Lock)
	if err != nil || !slices.Equal(lock.Names(), []string{"other", "say"}) {
		t.Errorf("the lock has %v, %v", lock, err)
	}
}

// SPEC S2, M4: while one fetches, or asks a person, others install, choose and remove at once; and what it has fetched stays.
func TestM4WhoFetchesOrAsksHoldsNobodyUp(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("bad", "1.0.0", "")))
	p.store.Waiting = func(process int) { t.Errorf("somebody waits for process %d", process) }
	asks := p.brought("say", "1.0.0", "permissions: [network]\n")
	s := p.open()
	c, err := s.Made(t.Context(), lockfile.Source{Kind: lockfile.Bundle, URL: "/slow"}, packages.From{}, func(dir string) error {
		p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(t.Context(), "bad", ""); return err }))
		p.must(p.install(p.source("good", "1.0.0", "")))
		p.must(p.do(func(s *packages.Session) error { return s.Use(t.Context(), "good", "1.0.0") }))
		return os.CopyFS(dir, os.DirFS(p.source("slow", "1.0.0", "")))
	})
	p.must(err)
	p.must(c.Install(t.Context(), all))
	p.must(asks.Install(t.Context(), all))
	lock, err := lockfile.Read(p.store.Lock)
	if err != nil || !slices.Equal(lock.Names(), []string{"good", "say", "slow"}) || p.serves() != "1.0.0" || len(p.rest()) != 0 {
		t.Errorf("the lock has %v, %v, and %v is left", lock, err, p.rest())
	}
}

// SPEC M4, M7: what a person agreed to is compared again at the moment of the change. What another orla has changed since then stays.
func TestM7WhatWasShownIsStillThere(t *testing.T) {
	remove := func(s *packages.Session) error { _, err := s.Remove(t.Context(), "say", ""); return err }
	use := func(s *packages.Session) error { return s.Use(t.Context(), "say", "1.1.0") }
	for name, test := range map[string]struct {
		installed []string // versions
		asks      string   // by the candidate, which is 2.0.0
		then      func(p *project, s *packages.Session) error
		installs  bool
	}{
		"nothing":            {[]string{"1.0.0"}, "network", nil, true},
		"it is removed":      {[]string{"1.0.0"}, "", func(_ *project, s *packages.Session) error { return remove(s) }, false},
		"another was chosen": {[]string{"1.1.0", "1.2.0"}, "", func(_ *project, s *packages.Session) error { return use(s) }, false},
		"another package": {[]string{"1.0.0"}, "", func(p *project, s *packages.Session) error {
			return installLocal(t.Context(), s, p.source("other", "1.0.0", ""))
		}, true},
		"the same": {[]string{"1.0.0"}, "network", func(p *project, s *packages.Session) error {
			return installLocal(t.Context(), s, filepath.Join(p.sources, "say"))
		}, true},
		"the same, first": {nil, "network", func(p *project, s *packages.Session) error {
			return installLocal(t.Context(), s, filepath.Join(p.sources, "say"))
		}, true},
		"the fetched files": {nil, "", func(p *project, _ *packages.Session) error { return changeStage(p) }, false},
		"the grant is smaller": {[]string{"1.0.0 network"}, "network", func(p *project, s *packages.Session) error {
			if err := remove(s); err != nil {
				return err
			}
			return installLocal(t.Context(), s, p.source("say", "1.0.0", ""))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			for _, version := range test.installed {
				version, asks := cut(version)
				p.must(p.install(p.source("say", version, asks)))
			}
			_, asks := cut("2.0.0 " + test.asks)
			c := p.brought("say", "2.0.0", asks)
			if test.then != nil {
				p.must(p.do(func(s *packages.Session) error { return test.then(p, s) }))
			}
			before := p.lockText()
			err := c.Install(t.Context(), packages.Consent{Permissions: true})
			if test.installs {
				p.must(err)
				if lock, err := lockfile.Read(p.store.Lock); err != nil || lock.Serving("say").Version != "2.0.0" {
					t.Errorf("the lock is\n%s, %v", p.lockText(), err)
				}
			} else if !errors.Is(err, packages.ErrChanged) || p.lockText() != before {
				t.Errorf("it ends with %v, and the lock is\n%s", err, p.lockText())
			}
			if left := p.rest(); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// cut splits a version and a permission, as a line of a tool.yaml.
func cut(text string) (version, asks string) {
	version, asks, _ = strings.Cut(text, " ")
	if asks != "" {
		asks = "permissions: [" + asks + "]\n"
	}
	return version, asks
}

// changeStage changes what was fetched.
func changeStage(p *project) error {
	stages, err := filepath.Glob(filepath.Join(p.store.Dir, ".orla", "stage-*", "bin", "run"))
	if err != nil || len(stages) != 1 {
		return errors.Join(err, errors.New("there is not one stage"))
	}
	return os.WriteFile(stages[0], []byte("#!/bin/sh\necho bad\n"), 0o755) //nolint:gosec // it may be run
}

// SPEC M5, M7: verify says if a lock grants what a package does not ask for, and accepts a grant with links resolved.
func TestM5VerifyComparesGrants(t *testing.T) {
	p := newProject(t)
	home := p.store.Machine.Home
	p.must(os.MkdirAll(filepath.Join(home, "real"), 0o700))
	p.must(os.Symlink("real", filepath.Join(home, "docs")))
	p.must(p.install(p.source("say", "1.0.0", "permissions: [network, 'filesystem:read:~/docs']\n")))
	problem := func() string {
		t.Helper()
		list, err := p.store.Verify(t.Context())
		p.must(err)
		return list[0].Problem
	}
	if got := problem(); got != "" {
		t.Errorf("as it was installed: %s", got)
	}
	lock, err := lockfile.Read(p.store.Lock)
	p.must(err)
	lock.Packages[0].Permissions = append(lock.Packages[0].Permissions, "env:SECRET")
	p.must(lockfile.Write(p.store.Lock, lock))
	if got := problem(); !strings.Contains(got, "the lock grants env:SECRET, which it does not ask for") {
		t.Errorf("with more: %q", got)
	}
}

// SPEC M8: an update can be taken back, unless somebody has changed something since then.
func TestM8TakeBack(t *testing.T) {
	p := newProject(t)
	p.must(p.install(p.source("say", "1.0.0", "")))
	before := p.lockText()
	update := func() *packages.Candidate {
		c := p.brought("say", "2.0.0", "")
		p.must(c.Install(t.Context(), all))
		if got := p.serves(); got != "2.0.0" {
			t.Errorf("%q serves", got)
		}
		return c
	}
	p.must(update().TakeBack(t.Context()))
	if p.lockText() != before || p.serves() != "1.0.0" || exists(filepath.Join(p.store.Dir, "say", "2.0.0")) {
		t.Errorf("the lock is\n%s\nand %q serves", p.lockText(), p.serves())
	}
	c := update()
	p.must(p.do(func(s *packages.Session) error { _, err := s.Remove(t.Context(), "say", ""); return err }))
	if err := c.TakeBack(t.Context()); !errors.Is(err, packages.ErrChanged) || p.serves() != "" {
		t.Errorf("after an uninstall it ends with %v, and %q serves", err, p.serves())
	}
}
