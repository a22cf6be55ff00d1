package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/claim"
)

// offer is what one provider offers of a sort.
type offer struct {
	by    *living
	keys  []string
	names []string // as the provider has them, in the same order; nil if they are the keys
}

// fold makes keys of names that are the same in rules if they differ in their case or their Unicode form alone (SPEC-TOOLS 8.4).
func (o *offer) fold() {
	o.names = o.keys
	o.keys = make([]string, len(o.names))
	for i, name := range o.names {
		o.keys[i] = rules.Folded(name)
	}
}

// name returns what the provider calls what has a key.
func (o *offer) name(i int) string {
	if o.names != nil {
		return o.names[i]
	}
	return o.keys[i]
}

// claiming decides who serves what in one catalog.
type claiming struct {
	of       *Supervisor
	next     map[claim.Claim][]string
	disputes map[dispute]*disputed
	order    []dispute
}

// dispute is that one provider offers what another serves.
type dispute struct {
	sort          claim.Sort
	loser, winner *living
}

type disputed struct {
	first string
	count int
}

func (s *Supervisor) newClaiming() *claiming {
	return &claiming{of: s, next: make(map[claim.Claim][]string, len(s.claims)), disputes: map[dispute]*disputed{}}
}

// winners returns who serves each key: one of the user's own before one of an installed package (SPEC M7), then a provider
// to which the name belongs by its manifest, else the one that offered it first, also before a restart of Orla (claim.File). Of
// those that are new at the same time, that is the first in the order of offers.
func (c *claiming) winners(sort claim.Sort, offers []offer) map[string]*living {
	n := 0
	for _, o := range offers {
		n += len(o.keys)
	}
	winners := make(map[string]*living, n)
	contested := map[string][]*living{}
	for _, o := range offers {
		for _, key := range o.keys {
			switch first, taken := winners[key]; {
			case !taken:
				winners[key] = o.by
			case first == o.by || slices.Contains(contested[key], o.by):
			default:
				contested[key] = append(contested[key], o.by)
			}
		}
	}
	for key, first := range winners {
		k := claim.Claim{Sort: sort, Key: key}
		line := c.line(k, first, contested[key])
		c.next[k] = line
		rank := func(l *living) int { return slices.Index(line, l.tool.Name) }
		for _, l := range contested[key] {
			was := winners[key]
			if by := cmp.Or(cmp.Compare(l.owned(), was.owned()), cmp.Compare(l.names(k), was.names(k)), cmp.Compare(rank(was), rank(l))); by > 0 {
				winners[key] = l
			}
		}
	}
	for _, o := range offers { // in order, so that what is told of them is the same each time
		for i, key := range o.keys {
			if len(contested[key]) > 0 && winners[key] != o.by {
				c.dispute(dispute{sort, o.by, winners[key]}, o.name(i))
			}
		}
	}
	return winners
}

// line is who offers something, by who did first: those that did before, if they still
// do or may do again, and then those that are new.
func (c *claiming) line(k claim.Claim, first *living, others []*living) []string {
	before := c.of.claims[k]
	if len(before) == 1+len(others) && before[0] == first.tool.Name &&
		slices.EqualFunc(before[1:], others, func(name string, l *living) bool { return name == l.tool.Name }) {
		return before // as a rule
	}
	now := []string{first.tool.Name}
	for _, l := range others {
		now = append(now, l.tool.Name)
	}
	line := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !slices.Contains(now, name) && !c.of.absent(name) })
	for _, name := range now {
		if !slices.Contains(line, name) {
			line = append(line, name)
		}
	}
	return line[:min(len(line), claim.MaxLine)]
}

// owned is 1 for what the user has described, and 0 for what is of an installed package.
func (l *living) owned() int {
	if l.tool.Run.Setup.Package != "" {
		return 0
	}
	return 1
}

// names says how much a name belongs to a manifest.
func (l *living) names(k claim.Claim) int { return belongsTo(k, l.tool.Name, l.peer != nil) }

// belongsTo says how much a name belongs to a manifest: most if the manifest itself has it, else more the longer the manifest's
// own name is with which it begins, and 0 if it does not begin so. hasTools says that it has tools of its own.
func belongsTo(k claim.Claim, name string, hasTools bool) int {
	name = rules.Folded(name)
	rest, begins := strings.CutPrefix(rules.Folded(k.Key), name)
	switch {
	case k.Sort != claim.Tool && k.Sort != claim.Prompt:
		return 0
	case !hasTools, begins && rest == "":
		return math.MaxInt
	case begins && (strings.HasPrefix(rest, "__") || strings.HasPrefix(rest, "--")):
		return len(name)
	}
	return 0
}

// lends reports whether a tool's name belongs to another than who serves it: to one that would serve it and is away.
func (c *claiming) lends(k claim.Claim, by *living) bool {
	line := c.next[k]
	its := slices.Index(line, by.tool.Name)
	for rank, name := range line {
		if rank == its || !c.of.absent(name) {
			continue
		}
		_, hasTools := c.of.claims[claim.Claim{Sort: claim.Provider, Key: name}]
		owned, belongs := 1, belongsTo(k, name, hasTools)
		if away := c.of.living[name]; away != nil {
			owned, belongs = away.owned(), away.names(k)
		}
		if cmp.Or(cmp.Compare(owned, by.owned()), cmp.Compare(belongs, by.names(k)), cmp.Compare(its, rank)) > 0 {
			return true
		}
	}
	return false
}

// absent reports whether a provider may come back and offer what it did: there is no
// manifest of its name now, or it has not said what it offers.
func (s *Supervisor) absent(name string) bool {
	l, is := s.living[name]
	return !is || l.peer != nil && (!l.offers.Known || l.offers.Silent)
}

func (c *claiming) dispute(d dispute, key string) {
	if was, ok := c.disputes[d]; ok {
		was.count++
		return
	}
	c.disputes[d] = &disputed{first: key, count: 1}
	c.order = append(c.order, d)
}

// done makes what was decided the supervisor's. New disputes are logged.
func (c *claiming) done(warn warner) {
	absent := map[claim.Claim][]string{}
	for k, line := range c.of.claims {
		if _, offered := c.next[k]; offered {
			continue
		}
		if left := slices.DeleteFunc(slices.Clone(line), func(name string) bool { return !c.of.absent(name) }); len(left) > 0 {
			absent[k] = left
		}
	}
	maps.Copy(c.next, claim.Within(absent, claim.MaxKept))
	if !maps.EqualFunc(c.of.claims, c.next, slices.Equal[[]string]) {
		c.of.kept.Note()
	}
	c.of.claims = c.next
	c.of.disputed = nil
	for _, d := range c.order {
		was := c.disputes[d]
		why := fmt.Sprintf("%s serves the same %s", d.winner.tool.Name, d.sort)
		warn(why, why, was.first, d.loser)
		more := ""
		if was.count > 1 {
			more = fmt.Sprintf(", and %d more", was.count-1)
		}
		c.of.disputed = append(c.of.disputed, manifest.Problem{
			Path: d.loser.tool.Source, Tool: d.loser.tool.Name, Severity: manifest.Warning,
			Err: fmt.Errorf("the %s %q of %s is not served%s: %s (%s) serves it", d.sort, was.first, d.loser.tool.Name, more, d.winner.tool.Name, d.winner.tool.Source),
		})
	}
}

// Problems says what providers offer that is not served, since another one serves it.
func (s *Supervisor) Problems() []manifest.Problem {
	s.applying.Lock()
	defer s.applying.Unlock()
	return s.disputed // it is replaced as a whole
}

// claimed returns who offered something first. It is not to be changed, and is replaced as a whole.
func (s *Supervisor) claimed() map[claim.Claim][]string {
	s.applying.Lock()
	defer s.applying.Unlock()
	return s.claims
}
