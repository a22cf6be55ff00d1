package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// sort is what a reference is to name.
type sort int

const (
	aTool sort = iota
	aCaller
)

// reference is a name in a rule that forbids something. One that names nothing forbids nothing, which is not
// what its author means.
type reference struct {
	manifest.Reference
	sort sort
	by   string // the rule
}

// Known is what names can be.
type Known struct {
	// Tool reports whether a name is that of a tool or of a provider, or can be one of a provider's tools.
	Tool func(folded string) bool
	// Caller reports the same for callers, groups and agents; nil if any name may be one.
	Caller func(folded string) bool
}

// Nameless returns one sentence for each name in a rule that names nothing, so that every call has to be denied
// (SPEC-TOOLS 8.3), each with the place where it stands.
func (s *Set) Nameless(known Known) (list []Fault) {
	if s == nil {
		return nil
	}
	for _, r := range s.references {
		name := fold(r.Name)
		switch {
		case r.sort == aTool && name != "*" && !known.Tool(name):
			list = append(list, Fault{At: r.At, Tool: name, Msg: fmt.Sprintf("%s is for the tool %q, and there is none; correct the name, or take the rule out", r.by, r.Name)})
		case r.sort == aCaller && known.Caller != nil && !s.bound[name] && !known.Caller(name):
			list = append(list, Fault{At: r.At, Msg: fmt.Sprintf("%s is for %q, which is not a caller, group or agent in the configuration; correct the name, or add it to callers", r.by, r.Name)})
		}
	}
	for _, r := range s.unbound {
		list = append(list, Fault{At: r.At, Msg: fmt.Sprintf("there is no AgentRole or toolset %q; correct the name, or define it", r.Name)})
	}
	return list
}

// Opening returns a sentence for each ToolPermission that lets callers call a tool that none of their roles allows: where one
// applies, it decides in place of the roles (SPEC-TOOLS 8.3), and this one requires nothing.
func (s *Set) Opening() (list []Fault) {
	if s == nil || !s.anyRoles() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.required)) {
		for _, p := range s.required[name] {
			if len(p.Required) == 0 && !p.deniesAll() {
				list = append(list, Fault{At: p.At, Msg: fmt.Sprintf("the ToolPermission %s decides in place of roles and requires no permission, so that callers may call %s whatever their roles allow; add required_permissions: [tool:%s:invoke]", p.Name, p.Tool.Name, p.Tool.Name)})
			}
		}
	}
	return list
}

// anyRoles reports whether a caller or a group has roles.
func (s *Set) anyRoles() bool {
	has := func(of map[string]*binding) bool {
		for _, b := range of {
			if b.hasRoles {
				return true
			}
		}
		return false
	}
	return has(s.byCaller) || has(s.byGroup)
}

// deniesAll reports whether a ToolPermission denies each call that it is for.
func (p *permission) deniesAll() bool {
	return slices.ContainsFunc(p.Operations, func(r manifest.OperationRule) bool { return r.Class == "*" && r.Verdict == manifest.Deny })
}

// Fault is what is wrong with a rule, and where.
type Fault struct {
	At, Msg string
	Tool    string // the folded name, if no tool has it
}

// Error returns what is wrong, and where.
func (f Fault) Error() string { return f.At + ": " + f.Msg }

// File returns the file that it stands in.
func (f Fault) File() string {
	file, _, _ := strings.Cut(f.At, ":")
	return file
}

// Folded makes a name comparable with others, whatever their case and Unicode form are.
func Folded(name string) string { return fold(name) }

// Exact makes the name of a caller comparable with others, whatever its Unicode form is.
func Exact(name string) string { return exact(name) }

// InProvider reports whether a name can be that of a tool of a provider: NAME__TOOL or NAME--TOOL. It looks no further than names
// of providers are long: whoever lists a tool chooses its name, which may be as long as a message.
func InProvider(folded string, isProvider func(folded string) bool) bool {
	for _, between := range []string{"__", "--"} {
		for at := 0; ; {
			i := strings.Index(folded[at:], between)
			if i < 0 || at+i > manifest.MaxName {
				break
			}
			if isProvider(folded[:at+i]) {
				return true
			}
			at += i + 1
		}
	}
	return false
}
