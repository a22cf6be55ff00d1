package pins

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

var (
	// ErrUnknown is in the chain of the error for a name that nothing has.
	ErrUnknown = errors.New("nothing of that name is pinned")
	// ErrOutdated is in the chain of the error of an Approve with another digest than that of what would be accepted.
	ErrOutdated = errors.New("it is not what was shown")
	// ErrRefused is in the chain of the error of an Approve that cannot be.
	ErrRefused = errors.New("it cannot be accepted")
)

// chosen are items of one provider.
type chosen struct {
	of    *Provider
	whole bool   // all of them
	items []item // sorted
}

// choose finds what a name means: the name of a manifest all that is listed, or else the name of a tool or a prompt,
// as clients call it or by the provider's own name after the provider's and -- or __.
func (s *Store) choose(name string) (chosen, error) {
	var found []chosen
	for _, p := range s.providers() {
		c := p.named(name)
		if c.whole {
			return c, nil
		}
		if len(c.items) > 0 {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return chosen{}, fmt.Errorf("%w: %.200q", ErrUnknown, name)
	case 1:
		return found[0], nil
	}
	var of []string
	for _, c := range found {
		of = append(of, c.of.name)
	}
	return chosen{}, fmt.Errorf("%w: %.200q may be of %s; put the provider's name and -- before its own name", ErrUnknown, name, strings.Join(of, ", "))
}

// named returns what a name means of this provider.
func (p *Provider) named(name string) chosen {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := chosen{of: p, whole: name == p.name}
	for i := range p.listed {
		if c.whole || name == p.shown(i) || name == p.name+"--"+i.name || name == p.name+"__"+i.name ||
			name == manifest.Dashed(p.name)+"--"+manifest.Dashed(i.name) {
			c.items = append(c.items, i)
		}
	}
	slices.SortFunc(c.items, compareItems)
	return c
}

func compareItems(a, b item) int {
	return cmp.Or(-cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

// pending returns those of the items that are not accepted. The caller holds mu of the provider.
func (c chosen) pending() []item {
	return slices.DeleteFunc(slices.Clone(c.items), func(i item) bool {
		one, listed := c.of.listed[i]
		return !listed || one.state == Accepted
	})
}

// digest is what names the definitions that would be accepted: that of the only one, or else one of all. The caller
// holds mu of the provider.
func (c chosen) digest(pending []item) Digest {
	if len(pending) == 1 && !c.whole {
		return c.of.listed[pending[0]].digest
	}
	all := sha256.New()
	for _, i := range pending {
		fmt.Fprintf(all, "%s %q %s\n", i.kind, i.name, c.of.listed[i].digest)
	}
	return Digest(all.Sum(nil))
}

// Approve accepts what is listed now of what a name means, which is a provider or an item of one, and returns what was
// not accepted before. digest is that of the View that was shown; "" accepts whatever is listed. by says
// who approves. Whoever has the provider's lists must Compare them again.
func (s *Store) Approve(name, digest, by string) (View, error) {
	c, err := s.choose(name)
	if err != nil {
		return View{}, err
	}
	d, err := c.of.approve(c, digest, by)
	if err != nil {
		return View{}, err
	}
	return d.finish(), nil
}

func (p *Provider) approve(c chosen, digest, by string) (*draft, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	p.judge()
	pending := c.pending()
	d := p.draft(c, p.kept(), true)
	switch shown := d.view.Digest; {
	case digest != "" && digest != shown.String() && (len(pending) != 1 || digest != d.view.Items[0].Digest.String()):
		return nil, fmt.Errorf("%w: the digest of what would be accepted is %s now", ErrOutdated, shown)
	case p.store.frozen:
		return nil, fmt.Errorf("%w by a process that does not serve", ErrRefused)
	case p.trouble != nil && !c.whole:
		return nil, fmt.Errorf("%w alone: %w; approve %s, with all that it lists", ErrRefused, p.trouble, p.name)
	case p.trouble == nil && len(pending) == 0:
		return d, nil
	}
	f, err := p.change(c.whole, func(f *file) {
		if p.trouble != nil { // the file is new, or holds what could not be used
			clear(f.Tools)
			clear(f.Prompts)
		}
		for _, i := range pending {
			p.accept(f, i, by)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRefused, p.path, err)
	}
	p.adopt(f)
	p.judge()
	return d, nil
}
