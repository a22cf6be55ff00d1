package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// View is what is known of one provider, or of items of it.
type View struct {
	Provider string
	Source   string // the manifest
	File     string // where it is kept; "" for nowhere
	Pin      manifest.Pin
	Trouble  error // why the file cannot be read or written; nil if it can
	Digest   Digest
	Items    []Item
}

// Item is what is known of one definition.
type Item struct {
	Kind  Kind
	Name  string // as clients call it, or would
	Own   string // as the provider calls it
	State State
	// Digest is that of what is listed; zero for what is Absent. Was is that of the accepted definition; zero for none.
	Digest, Was Digest
	Accepted    time.Time // zero if Was is
	By          string
	Difference
	Findings []Finding
}

// Difference is how a definition that is listed differs from the accepted one.
type Difference struct {
	// Before and After are the accepted definition and the one that is listed. Before is nil if there is none, or if
	// it could not be kept.
	Before, After json.RawMessage
	Changes       []Change
	More          int // how many places more differ
}

// Absent is the state of what was accepted and is not listed.
const Absent State = "absent"

// All returns what is known of all providers. others are names that tools of others have, by the names of
// their manifests.
func (s *Store) All(others map[string][]string) []View {
	taken := s.taken(others)
	var all []View
	for _, p := range s.providers() {
		v := p.look(p.named(p.name), false)
		v.shadows(taken)
		all = append(all, v)
	}
	return all
}

// Look returns what is not accepted of what a name means, and how it differs from what is.
func (s *Store) Look(name string, others map[string][]string) (View, error) {
	c, err := s.choose(name)
	if err != nil {
		return View{}, err
	}
	v := c.of.look(c, true)
	v.shadows(s.taken(others))
	return v, nil
}

// look returns what is known of items. whole is that of draft.
func (p *Provider) look(c chosen, whole bool) View {
	f := p.kept()
	p.mu.Lock()
	d := p.draft(c, f, whole)
	p.mu.Unlock()
	return d.finish()
}

// kept returns what the file says; nothing if it cannot be read.
func (p *Provider) kept() *file {
	read := readFile
	if p.store.common != nil {
		read = func(string) (*file, error) { return p.store.common.read(p.name) }
	}
	f, err := read(p.path)
	if err != nil {
		return &file{}
	}
	return f
}

// draft is a View whose definitions are not looked at yet. That takes a while, and nobody waits for it.
type draft struct {
	view   View
	listed []listedItem // of its first items
	whole  bool
}

// draft returns what is known of items, which f, what the file says, is part of. whole adds the definitions and their
// differences, and leaves out what is accepted or absent. The caller holds mu.
func (p *Provider) draft(c chosen, f *file, whole bool) *draft {
	pending := c.pending()
	d := &draft{whole: whole, view: View{Provider: p.name, Source: p.source, Pin: manifest.PinWarn, Trouble: p.trouble, Digest: c.digest(pending)}}
	v := &d.view
	if p.hold {
		v.Pin = manifest.PinHold
	}
	if p.store.keeps() {
		v.File = p.path
	}
	items := c.items
	if whole {
		items = pending
	}
	for _, i := range items {
		one, k := p.listed[i], f.of(i.kind)[i.name]
		if one == nil { // it is not listed any more
			continue
		}
		got := Item{
			Kind: i.kind, Name: p.shown(i), Own: i.name, State: one.state, Digest: one.digest,
			Was: p.accepted[i], Accepted: k.Accepted, By: k.By,
		}
		if whole && k.Digest == got.Was {
			got.Before = k.Definition
		}
		v.Items, d.listed = append(v.Items, got), append(d.listed, *one)
	}
	if whole {
		return d
	}
	f.each(func(i item, k kept) {
		if _, listed := p.listed[i]; !listed {
			v.Items = append(v.Items, Item{Kind: i.kind, Name: p.shown(i), Own: i.name, State: Absent, Was: k.Digest, Accepted: k.Accepted, By: k.By})
		}
	})
	return d
}

// maxShownTogether bounds the changes that one View shows, and its findings. Of each definition, the first ones are
// shown in any case.
const maxShownTogether = 1000

// finish looks at the definitions. It needs no lock.
func (d *draft) finish() View {
	of := &definer{}
	changesLeft, findingsLeft := maxShownTogether, maxShownTogether
	for n := range d.listed {
		i := &d.view.Items[n]
		now := d.listed[n].define(of, i.Own)
		i.Findings = findings(now.text, min(maxFindings, max(1, findingsLeft)))
		findingsLeft -= len(i.Findings)
		if d.whole {
			i.After = bytes.Clone(now.text)
			i.Changes, i.More = changes(i.Before, i.After, min(maxChanges, max(1, changesLeft)))
			changesLeft -= len(i.Changes)
		}
	}
	slices.SortFunc(d.view.Items, func(a, b Item) int { return compareItems(item{a.Kind, a.Own}, item{b.Kind, b.Own}) })
	return d.view
}

// taken returns who has a tool of each name, by its plain form.
func (s *Store) taken(others map[string][]string) map[string]map[string]bool {
	taken := map[string]map[string]bool{}
	add := func(of, name string) {
		name = plainName(name)
		if taken[name] == nil {
			taken[name] = map[string]bool{}
		}
		taken[name][of] = true
	}
	for of, names := range others {
		add(of, of)
		for _, name := range names {
			add(of, name)
		}
	}
	for _, p := range s.providers() {
		p.mu.Lock()
		for i := range p.listed {
			if i.kind == Tool {
				add(p.name, i.name)
			}
		}
		p.mu.Unlock()
	}
	return taken
}

// plainName is the same for names that a model may take for one.
func plainName(name string) string { return strings.ToLower(manifest.Dashed(name)) }

// shadows adds a finding for each tool whose name a tool of another provider has.
func (v *View) shadows(taken map[string]map[string]bool) {
	for n := range v.Items {
		i := &v.Items[n]
		if i.Kind != Tool || i.State == Absent {
			continue
		}
		var others []string
		for _, of := range slices.Sorted(maps.Keys(taken[plainName(i.Own)])) {
			if of != v.Provider {
				others = append(others, brief.Cut(of, maxShown))
			}
		}
		if len(others) > 0 {
			i.Findings = append(i.Findings, Finding{Path: "name", Kind: Shadow, Text: "a tool of this name is also there from " + strings.Join(others, ", ")})
		}
	}
}

// Problems are what operators have to know: definitions that are not accepted, and files that cannot be used.
func (s *Store) Problems() (list []manifest.Problem) {
	for _, p := range s.providers() {
		p.mu.Lock()
		list = append(list, p.problems()...)
		p.mu.Unlock()
	}
	return list
}

// maxNamed is how many names a problem has.
const maxNamed = 5

func (p *Provider) problems() []manifest.Problem {
	add := func(severity manifest.Severity, format string, args ...any) []manifest.Problem {
		return []manifest.Problem{{Path: p.source, Tool: p.name, Severity: severity, Err: fmt.Errorf(format, args...)}}
	}
	switch {
	case p.trouble != nil && p.hold:
		return add(manifest.Fault, "nothing of %s is served: %w; orla pins approve %[1]s accepts what it lists now", p.name, p.trouble)
	case p.trouble != nil:
		return add(manifest.Warning, "changes of the definitions of %s may not be noticed: %w; orla pins approve %[1]s accepts what it lists now", p.name, p.trouble)
	}
	var names []string
	for i, one := range p.listed {
		switch one.state {
		case Changed:
			names = append(names, brief.Cut(p.shown(i), maxShown))
		case New:
			names = append(names, brief.Cut(p.shown(i), maxShown)+" (new)")
		case Accepted, Unknown, Absent:
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	n := len(names)
	if n > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	what, served := "definitions that were not accepted", ""
	if n == 1 {
		what = "definition that was not accepted"
	}
	if p.hold {
		served = ", not served"
	}
	return add(manifest.Warning, "%d %s%s: %s; orla pins diff %s shows how they differ, orla pins approve %[5]s accepts them", n, what, served, strings.Join(names, ", "), p.name)
}
