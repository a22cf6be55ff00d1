package packages_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// search searches as a reload does. asked is called each time that the search looks whether it is to end.
func (p *project) search(asked func()) manifest.Result {
	p.Helper()
	l := &config.Loader{Path: filepath.Join(p.dir, "orla.yaml"), Home: filepath.Join(p.dir, "home")}
	cfg, err := l.Load()
	if err != nil {
		p.Fatal(err)
	}
	return discovery.Search{Stopped: func() error { asked(); return nil }}.Find(cfg, l.Home)
}

// changes are what another process may do to the package say, which is installed as 1.0.0.
var changes = map[string]func(p *project, round int) error{
	"the same version with other files": func(p *project, round int) error {
		return p.install(p.source("say", "1.0.0", fmt.Sprintf("keywords: [r%d]\n", round)))
	},
	"a new version": func(p *project, round int) error {
		return p.install(p.source("say", fmt.Sprintf("1.0.%d", round+1), ""))
	},
	"another package": func(p *project, round int) error {
		return p.install(p.source(fmt.Sprintf("other%d", round), "1.0.0", ""))
	},
}

// SPEC M8: a whole install takes place at each moment of a reload: the package that is served stays in what is found, without a
// problem, and the next search finds what was installed.
func TestM8AnInstallAtEachMomentOfAReload(t *testing.T) {
	needs.Time(t, "installs at each moment of a reload")
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			p := newProject(t)
			p.must(p.install(p.source("say", "1.0.0", "")))
			moments, rounds := 0, 1
			for at := 1; at <= rounds; at++ {
				asked := 0
				found := p.search(func() {
					if asked++; asked == at {
						p.must(change(p, at))
						moments++
					}
				})
				rounds = min(max(rounds, asked), 25) // a search that waits asks often
				p.wantServed(found, fmt.Sprintf("moment %d", at))
				p.wantServed(p.search(func() {}), fmt.Sprintf("after moment %d", at))
			}
			if moments < 3 {
				t.Errorf("%d installs took place during a reload: this test proves nothing", moments)
			}
		})
	}
}

func (p *project) wantServed(found manifest.Result, when string) {
	p.Helper()
	n := 0
	for _, tool := range found.Tools {
		if tool.Name == "say" {
			n++
		}
	}
	if n != 1 || len(found.Problems) > 0 {
		p.Errorf("%s: say is found %d times, with %v", when, n, found.Problems)
	}
}

// SPEC M8: a whole reload takes place while an install is at each of its steps, and at the one between the lock and the folder it
// waits for the install.
func TestM8AReloadAtEachStepOfAnInstall(t *testing.T) {
	needs.Time(t, "installs again for each step")
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			p := newProject(t)
			p.must(p.install(p.source("say", "1.0.0", "")))
			var steps []string
			p.store.Step = func(name string) error {
				steps = append(steps, name)
				return nil
			}
			p.must(change(p, 1))
			p.store.Step = nil
			if len(steps) < 6 {
				t.Fatalf("the steps are %q: this test proves nothing", steps)
			}
			for i, step := range steps {
				p.reloadsAt(step, func() error { return change(p, i+2) })
			}
		})
	}
}

// reloadsAt searches while a change is held at a step. The change goes on when the search has asked more often than it does
// without waiting, or is over.
func (p *project) reloadsAt(step string, change func() error) {
	p.Helper()
	usual := 0
	p.search(func() { usual++ })
	there, goOn, done := make(chan bool), make(chan bool), make(chan error, 1)
	p.store.Step = func(name string) error {
		if name == step {
			there <- true
			<-goOn
		}
		return nil
	}
	go func() { done <- change() }()
	select {
	case <-there:
	case err := <-done:
		p.Fatalf("the step %s is not made: %v", step, err)
	}
	asked, waited := 0, false
	found := p.search(func() {
		if asked++; asked == 2*usual+3 {
			waited = true
			goOn <- true
		}
	})
	if !waited {
		goOn <- true
	}
	p.must(<-done)
	p.store.Step = nil
	p.wantServed(found, "during the step "+step)
	if between := step == "make the folder" || step == "move"; waited != between {
		p.Errorf("during the step %s the search waits: %t", step, waited)
	}
	p.wantServed(p.search(func() {}), "after the step "+step)
}
