package rules

import (
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/orla-project/orla/manifest"
)

// Target is what a call would run, whatever it is called by (SPEC-TOOLS 8.4). It may be used from any
// goroutine.
type Target struct {
	// Members are the targets of the tools of a provider, for DecideRequest; nil for a tool.
	Members []*Target

	shown        string   // its name, as clients have it
	names        []string // folded
	ruled        []string // folded: names, and those by which rules hold and roles grant nothing
	classes      []manifest.OperationClass
	capabilities []string // folded

	judged atomic.Pointer[judgement]
	reads  reads
}

// judgement is what a Set says by the name of a target.
type judgement struct {
	set      *Set
	global   *policy   // the first for all callers that blocks it
	policies []*policy // all that block it
	always   []ruling  // the ToolPermissions that name it, for all callers
	scoped   []ruling  // and for some
}

// ruling is a ToolPermission that is about a target.
type ruling struct {
	*permission
	decides bool // it names the target by what is its name alone, and so decides in place of roles
}

// NewTarget returns a Target. The first of its names is the one that it is told by, or the first of own, if it has no name. own are names that
// others may have as well, such as what its provider calls it: rules for them hold, no role grants anything
// by them, and no ToolPermission for them decides in place of roles.
func NewTarget(names, own []string, classes []manifest.OperationClass, capabilities []string) *Target {
	t := &Target{shown: slices.Concat(names, own)[0], classes: classes}
	for _, name := range names {
		t.names = appendNew(t.names, fold(name))
	}
	t.ruled = t.names
	for _, name := range own {
		t.ruled = appendNew(slices.Clip(t.ruled), fold(name))
	}
	for _, c := range capabilities {
		t.capabilities = appendNew(t.capabilities, fold(c))
	}
	return t
}

func appendNew(list []string, one string) []string {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

// Classes returns what a call of the target does.
func (t *Target) Classes() []manifest.OperationClass { return t.classes }

// Names returns all names that rules know it by, folded. They must not be changed.
func (t *Target) Names() []string { return t.ruled }

// Name returns the name that clients have for it.
func (t *Target) Name() string { return t.shown }

func (t *Target) name() string { return t.shown }

// judgementOf returns what a Set says by name, which is looked up once.
func (t *Target) judgementOf(s *Set) *judgement {
	if j := t.judged.Load(); j != nil && j.set == s {
		return j
	}
	j := &judgement{set: s, policies: s.blocked["*"]}
	for i, name := range t.ruled {
		if name != "*" {
			j.policies = append(slices.Clip(j.policies), s.blocked[name]...)
			j.add(s.required[name], i < len(t.names)) // ruled begins with names
		}
	}
	if i := slices.IndexFunc(j.policies, func(p *policy) bool { return p.Global }); i >= 0 {
		j.global = j.policies[i]
	}
	t.judged.Store(j)
	return j
}

func (j *judgement) add(list []*permission, decides bool) {
	for _, p := range list {
		of := &j.always
		if p.Scoped {
			of = &j.scoped
		}
		*of = append(*of, ruling{p, decides})
	}
}

// permissions returns the ToolPermissions that are about the target, whoever calls.
func (j *judgement) permissions() (all []ruling) {
	for _, p := range j.set.required["*"] {
		all = append(all, ruling{p, true})
	}
	return append(append(all, j.always...), j.scoped...)
}

// rights are permissions, by what they are for. Names are folded.
type rights struct {
	tools, capabilities map[string]bool // "*" for all
}

func newRights(list []manifest.Right) rights {
	r := rights{map[string]bool{}, map[string]bool{}}
	for _, right := range list {
		if right.Tool != "" {
			r.tools[fold(right.Tool)] = true
		} else {
			r.capabilities[fold(right.Capability)] = true
		}
	}
	return r
}

func (r *rights) add(other rights) {
	for name := range other.tools {
		r.tools[name] = true
	}
	for name := range other.capabilities {
		r.capabilities[name] = true
	}
}

// covers reports whether the rights allow to call a target.
func (r *rights) covers(t *Target) bool {
	return anyOf(r.tools, t.names) || len(t.capabilities) > 0 && anyOf(r.capabilities, t.capabilities)
}

// anyOf reports whether one of the names is there, or all are meant.
func anyOf(all map[string]bool, names []string) bool {
	if all["*"] {
		return true
	}
	for _, name := range names {
		if all[name] {
			return true
		}
	}
	return false
}

// grants reports whether the rights have one that is required for a target, with a folded name. Of a tool all its names are one.
func (r *rights) grants(required manifest.Right, t *Target) bool {
	switch {
	case required.Tool == "":
		return r.capabilities["*"] || r.capabilities[required.Capability]
	case slices.Contains(t.names, required.Tool):
		return anyOf(r.tools, t.names)
	}
	return r.tools["*"] || r.tools[required.Tool]
}

// exact is a name of a caller, which is compared with regard to its case.
func exact(name string) string { return norm.NFC.String(name) }

// fold makes names comparable that differ in their case or in their Unicode form.
func fold(name string) string {
	ascii := true
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(name)
	}
	return strings.Map(func(r rune) rune { // the least of the characters that are one but for their case
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return unicode.ToLower(least)
	}, norm.NFC.String(name))
}
