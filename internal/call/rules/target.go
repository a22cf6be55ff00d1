package rules

import (
	"maps"
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
	// Define returns a digest of what clients are told of the tool, the same each time; nil if there is nothing to tell.
	Define func() string

	*NameList
	shown        string // its name, as clients have it
	classes      []manifest.OperationClass
	capabilities []string // folded

	reads reads
}

// NameList is what a target is called, as rules compare it. Targets that are the same tool share one. It may be used from any goroutine.
type NameList struct {
	names []string // folded
	ruled []string // folded: names, and those by which rules hold and roles grant nothing
	first string   // as it was given
	// among has names, if they are many, so that a few rights are looked up in them and not they in the rights.
	among map[string]bool

	judged  atomic.Pointer[judgement]
	matched atomic.Pointer[match] // the toolset that was asked last, of many names
}

// match says whether a toolset has a target.
type match struct {
	toolset *globs
	has     bool
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

// NewNameList returns the names of a target. own are names that others may have as well, such as what its provider calls it: rules for
// them hold, no role grants anything by them, and no ToolPermission for them decides in place of roles. It costs in proportion to the names.
func NewNameList(names, own []string) *NameList {
	l := &NameList{first: slices.Concat(names, own)[0]}
	there := make(map[string]bool, len(names)+len(own))
	add := func(all []string) {
		for _, name := range all {
			if name = fold(name); !there[name] {
				there[name] = true
				l.ruled = append(l.ruled, name)
			}
		}
	}
	add(names)
	l.names = slices.Clip(l.ruled)
	if len(l.names) > few {
		l.among = maps.Clone(there)
	}
	add(own)
	return l
}

// Equal reports whether rules hold for two lists in the same way.
func (l *NameList) Equal(other *NameList) bool {
	return l == other || len(l.names) == len(other.names) && l.first == other.first && slices.Equal(l.ruled, other.ruled)
}

// isCalled reports whether a folded name is one of names.
func (l *NameList) isCalled(name string) bool {
	if l.among != nil {
		return l.among[name]
	}
	return slices.Contains(l.names, name)
}

// isIn reports whether one of names is there, or all are meant.
func (l *NameList) isIn(all map[string]bool) bool {
	if len(all) >= len(l.among) {
		return anyOf(all, l.names)
	}
	if all["*"] {
		return true
	}
	for name := range all {
		if l.among[name] {
			return true
		}
	}
	return false
}

// isOf reports whether a toolset has the target.
func (l *NameList) isOf(toolset *globs) bool {
	if l.among == nil {
		return toolset.match(l.names)
	}
	m := l.matched.Load()
	if m == nil || m.toolset != toolset {
		m = &match{toolset, toolset.match(l.names)}
		l.matched.Store(m)
	}
	return m.has
}

// Target returns the target with these names that clients call shown. It is told by its first name if shown is none of them.
func (l *NameList) Target(shown string, classes []manifest.OperationClass, capabilities []string) *Target {
	t := &Target{NameList: l, shown: shown, classes: classes}
	if !l.isCalled(fold(shown)) {
		t.shown = l.first
	}
	for _, c := range capabilities {
		if c = fold(c); !slices.Contains(t.capabilities, c) {
			t.capabilities = append(t.capabilities, c)
		}
	}
	return t
}

// NewTarget returns a target that shares its names with no other, and is told by the first of them.
func NewTarget(names, own []string, classes []manifest.OperationClass, capabilities []string) *Target {
	l := NewNameList(names, own)
	return l.Target(l.first, classes, capabilities)
}

// Classes returns what a call of the target does.
func (t *Target) Classes() []manifest.OperationClass { return t.classes }

// Names returns all names that rules know it by, folded. They must not be changed.
func (l *NameList) Names() []string { return l.ruled }

// Name returns the name that clients have for it.
func (t *Target) Name() string { return t.shown }

func (t *Target) name() string { return t.shown }

// Definition returns a digest of what clients are told of the tool; "" for none.
func (t *Target) Definition() string {
	if t.Define == nil {
		return ""
	}
	return t.Define()
}

// Same reports whether an approval of a call of t is one of a call of another target: it has the same names, does the
// same and is told of in the same way (SPEC-TOOLS 8.7).
func (t *Target) Same(other *Target) bool {
	return t == other || other != nil && slices.Equal(t.ruled, other.ruled) && slices.Equal(t.classes, other.classes) && t.Definition() == other.Definition()
}

// judgementOf returns what a Set says by name, which is looked up once.
func (l *NameList) judgementOf(s *Set) *judgement {
	if j := l.judged.Load(); j != nil && j.set == s {
		return j
	}
	j := &judgement{set: s, policies: s.blocked["*"]}
	for i, name := range l.ruled {
		if name != "*" {
			j.policies = append(slices.Clip(j.policies), s.blocked[name]...)
			j.add(s.required[name], i < len(l.names)) // ruled begins with names
		}
	}
	if i := slices.IndexFunc(j.policies, func(p *policy) bool { return p.Global }); i >= 0 {
		j.global = j.policies[i]
	}
	l.judged.Store(j)
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
	return t.isIn(r.tools) || len(t.capabilities) > 0 && anyOf(r.capabilities, t.capabilities)
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
	case t.isCalled(required.Tool):
		return t.isIn(r.tools)
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
