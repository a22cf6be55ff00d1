package rules_test

import (
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// most is how long a decision may take at 1 000 rules and 10 000 tools (SPEC-TOOLS 8.3), in nanoseconds.
const most = 3000

// ruled are n rules of a sort, and a caller whom they make work.
type ruled struct {
	documents manifest.Rules
	bindings  []rules.Binding
	toolsets  []rules.Toolset
	caller    rules.Caller
	one       bool // all calls are of one tool
}

// sortsOfRules are rules that name different tools, all tools, or one tool.
var sortsOfRules = map[string]func(n int) ruled{
	"one for each tool": func(n int) (r ruled) {
		for i := range n {
			p := permission(fmt.Sprint("tool", i), manifest.Allow)
			p.Required = []manifest.Right{{Tool: fmt.Sprint("tool", i)}}
			r.documents.Permissions = append(r.documents.Permissions, p)
		}
		r.documents.Roles = []manifest.Role{{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "*"}}}}
		r.bindings = []rules.Binding{{Caller: "ann", Roles: refs("r")}}
		return r
	},
	"ToolPermissions for all tools and other callers": func(n int) (r ruled) {
		for i := range n {
			r.documents.Permissions = append(r.documents.Permissions, manifest.Permission{Reference: refs("p")[0], Tool: refs("*")[0], Scoped: true, Agents: refs(fmt.Sprint("agent", i))})
		}
		r.bindings = []rules.Binding{{Caller: "ann"}}
		return r
	},
	"ToolPermissions for one tool and other callers": func(n int) (r ruled) {
		for i := range n {
			r.documents.Permissions = append(r.documents.Permissions, manifest.Permission{Reference: refs("p")[0], Tool: refs("tool0")[0], Scoped: true, Agents: refs(fmt.Sprint("agent", i))})
		}
		r.bindings, r.one = []rules.Binding{{Caller: "ann"}}, true
		return r
	},
	"ToolPermissions for all tools with requirements": func(n int) (r ruled) {
		role := manifest.Role{Reference: refs("r")[0]}
		for i := range n {
			right := manifest.Right{Tool: fmt.Sprint("x", i)}
			r.documents.Permissions = append(r.documents.Permissions, manifest.Permission{Reference: refs("p")[0], Tool: refs("*")[0], Required: []manifest.Right{right}})
			role.Permissions = append(role.Permissions, right)
		}
		r.documents.Roles, r.bindings = []manifest.Role{role}, []rules.Binding{{Caller: "ann", Roles: refs("r")}}
		return r
	},
	"policies for one tool and other callers": func(n int) (r ruled) {
		for i := range n {
			r.documents.Policies = append(r.documents.Policies, manifest.Policy{Reference: refs("p")[0], Systems: refs(fmt.Sprint("agent", i)), Blocked: refs("tool0")})
		}
		r.bindings, r.one = []rules.Binding{{Caller: "ann"}}, true
		return r
	},
	"a toolset": func(n int) (r ruled) {
		set := rules.Toolset{Name: "web"}
		for i := range n {
			set.Tools = append(set.Tools, fmt.Sprintf("svc%d__*", i), fmt.Sprintf("*__svc%d", i))
		}
		r.toolsets, r.bindings = []rules.Toolset{set}, []rules.Binding{{Caller: "ann", Toolsets: refs("web")}}
		return r
	},
	"groups": func(n int) (r ruled) {
		r.documents.Permissions = []manifest.Permission{permission("tool0", manifest.Allow)}
		for i := range n {
			r.caller.Groups = append(r.caller.Groups, fmt.Sprint("group-of-people-", i))
		}
		return r
	},
}

// prepare returns what decides about the next call, after each target was decided about once: lists do that.
func (r ruled) prepare(tools int) func() {
	set := rules.New(r.documents, r.bindings, r.toolsets)
	if r.one {
		tools = 1
	}
	targets := make([]*rules.Target, tools)
	for i := range targets {
		targets[i] = rules.NewTarget([]string{fmt.Sprint("tool", i)}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	}
	r.caller.Name = "ann"
	at := 0
	next := func() {
		set.Decide(r.caller, targets[at%len(targets)])
		at++
	}
	for range targets {
		next()
	}
	return next
}

// SPEC-TOOLS 8.3: at 1 000 rules and 10 000 tools a decision takes at most 3 µs, whatever the rules name.
func BenchmarkT83Decide(b *testing.B) {
	for name, sort := range sortsOfRules {
		b.Run(name, func(b *testing.B) {
			next := sort(1000).prepare(10_000)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/most, "of_3µs")
		})
	}
	b.Run("a request to a provider whose tools are denied", func(b *testing.B) {
		next := requests(10_000)
		b.ReportAllocs()
		for b.Loop() {
			next()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/most, "of_3µs")
	})
}

// requests returns what decides about a request to a provider with n tools, none of which the caller may call.
func requests(n int) func() {
	role := manifest.Role{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "other"}}}
	set := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: refs("r")}}, nil)
	provider := rules.NewTarget([]string{"box"}, nil, nil, nil)
	for i := range n {
		provider.Members = append(provider.Members, rules.NewTarget([]string{fmt.Sprint("box__tool", i), "box"}, nil, nil, nil))
	}
	return func() { set.DecideRequest(rules.Caller{Name: "ann"}, provider) }
}
