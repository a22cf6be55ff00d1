package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// model is SPEC-TOOLS 8.3 written once more, as plainly as it can be: it looks at every document for each
// call, knows only lower case, and shares no code with the package.
type model struct {
	documents manifest.Rules
	roles     map[string][]string // of callers and groups
}

func (m *model) decide(who []string, task, tool string, classes, capabilities []string) string {
	has := func(list []manifest.Reference) bool {
		return slices.ContainsFunc(list, func(r manifest.Reference) bool { return slices.Contains(who, r.Name) })
	}
	for _, p := range m.documents.Policies {
		inTask := slices.ContainsFunc(p.Tasks, func(r manifest.Reference) bool { return r.Name == task })
		blocks := slices.ContainsFunc(p.Blocked, func(r manifest.Reference) bool { return r.Name == tool || r.Name == "*" })
		if blocks && (p.Global || has(p.Systems) || inTask) {
			return "deny"
		}
	}
	var permissions []string
	hasRoles := false
	for _, name := range who {
		for _, role := range m.roles[name] {
			hasRoles = true
			for _, r := range m.documents.Roles {
				if r.Name == role {
					for _, right := range r.Permissions {
						permissions = append(permissions, right.String())
					}
				}
			}
		}
	}
	may := func(right string) bool {
		kind := right[:strings.Index(right, ":")]
		all := map[string]string{"tool": "tool:*:invoke", "capability": "capability:*"}[kind]
		return slices.Contains(permissions, right) || slices.Contains(permissions, all)
	}
	strict := []string{"allow", "approval_required", "deny"}
	verdict, ruled := 0, false
	for _, p := range m.documents.Permissions {
		if p.Tool.Name != tool && p.Tool.Name != "*" || p.Scoped && !has(p.Agents) {
			continue
		}
		ruled = true
		owned := 0
		for _, right := range p.Required {
			if may(right.String()) {
				owned++
			}
		}
		if p.Any && owned == 0 && len(p.Required) > 0 || !p.Any && owned < len(p.Required) {
			return "deny"
		}
		for _, o := range p.Operations {
			if o.Class == "*" || slices.Contains(classes, string(o.Class)) {
				verdict = max(verdict, slices.Index(strict, string(o.Verdict)))
			}
		}
	}
	if !ruled && hasRoles && !may("tool:"+tool+":invoke") && !slices.ContainsFunc(capabilities, func(c string) bool { return may("capability:" + c) }) {
		return "deny"
	}
	return strict[verdict]
}

func refs(names ...string) (list []manifest.Reference) {
	for _, name := range names {
		list = append(list, manifest.Reference{Name: name, At: "a.yaml:1:1"})
	}
	return list
}

// some returns a random part of a list, at most so many.
func some[T any](r *rand.Rand, most int, of ...T) (list []T) {
	for range r.IntN(most + 1) {
		list = append(list, of[r.IntN(len(of))])
	}
	return list
}

// SPEC-TOOLS 8.3: the decision is that of the specification, over random documents, callers and tools.
func TestT83TheDecisionIsThatOfAModel(t *testing.T) {
	rounds := needs.Rounds(200, 400)
	verdicts := map[string]int{}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 83))
		m := model{roles: map[string][]string{}}
		tools, callers, groups := []string{"fetch", "write", "srv__a"}, []string{"ann", "bob", "cli"}, []string{"staff", "guests"}
		rights := []manifest.Right{{Tool: "fetch"}, {Tool: "write"}, {Tool: "srv__a"}, {Tool: "*"}, {Capability: "web.read"}, {Capability: "db"}, {Capability: "*"}}
		for _, name := range some(r, 3, "reader", "writer", "odd") {
			if !slices.ContainsFunc(m.documents.Roles, func(o manifest.Role) bool { return o.Name == name }) {
				m.documents.Roles = append(m.documents.Roles, manifest.Role{Reference: refs(name)[0], Permissions: some(r, 3, rights...)})
			}
		}
		for i := range r.IntN(3) {
			m.documents.Policies = append(m.documents.Policies, manifest.Policy{
				Reference: refs(fmt.Sprint("p", i))[0], Global: r.IntN(4) == 0,
				Systems: refs(some(r, 2, "ann", "staff", "cli")...), Tasks: refs(some(r, 1, "report")...), Blocked: refs(some(r, 2, append(tools, "*")...)...),
			})
		}
		for i := range r.IntN(4) {
			p := manifest.Permission{
				Reference: refs(fmt.Sprint("t", i))[0], Tool: refs(append(tools, "*")[r.IntN(4)])[0], Any: r.IntN(2) == 0,
				Scoped: r.IntN(2) == 0, Agents: refs(some(r, 2, "ann", "bob", "guests")...), Required: some(r, 2, rights...),
			}
			for range r.IntN(3) {
				p.Operations = append(p.Operations, manifest.OperationRule{
					Class:   []manifest.OperationClass{"read", "write", "delete", "admin", "*"}[r.IntN(5)],
					Verdict: []manifest.Verdict{manifest.Allow, manifest.ApprovalRequired, manifest.Deny}[r.IntN(3)],
				})
			}
			m.documents.Permissions = append(m.documents.Permissions, p)
		}
		var bindings []rules.Binding
		for _, name := range append(slices.Clone(callers), groups...) {
			if r.IntN(2) == 0 {
				continue
			}
			var names []string
			for _, role := range m.documents.Roles {
				if r.IntN(2) == 0 {
					names = append(names, role.Name)
				}
			}
			m.roles[name] = names
			b := rules.Binding{Caller: name, Roles: refs(names...)}
			if slices.Contains(groups, name) {
				b.Caller, b.Group = "", name
			}
			bindings = append(bindings, b)
		}
		set := rules.New(m.documents, bindings, nil)
		for range 40 {
			c := rules.Caller{Name: callers[r.IntN(3)], Groups: some(r, 2, groups...), Task: []string{"", "report", "other"}[r.IntN(3)]}
			tool := tools[r.IntN(3)]
			classes := some(r, 2, "read", "write", "delete", "admin")
			capabilities := some(r, 2, "web.read", "db")
			want := m.decide(append([]string{c.Name}, c.Groups...), c.Task, tool, classes, capabilities)
			var of []manifest.OperationClass
			for _, class := range classes {
				of = append(of, manifest.OperationClass(class))
			}
			target := rules.NewTarget([]string{tool}, nil, of, capabilities)
			for range 2 { // the second time from what is kept
				if got := set.Decide(c, target); string(got.Verdict) != want {
					t.Fatalf("seed %d: %+v calls %s %v %v: %+v, want %s\n%+v\n%+v", seed, c, tool, classes, capabilities, got, want, m.documents, bindings)
				}
			}
			verdicts[want]++
			if steps := set.Explain(c, target); want == "deny" && !slices.ContainsFunc(steps, func(s rules.Step) bool { return s.Verdict == manifest.Deny }) {
				t.Fatalf("seed %d: nothing explains why %+v may not call %s: %+v", seed, c, tool, steps)
			}
		}
	}
	for _, verdict := range []string{"allow", "approval_required", "deny"} {
		if verdicts[verdict] < rounds*40/100 {
			t.Errorf("%s: %d of %d decisions; the test has to try all", verdict, verdicts[verdict], rounds*40)
		}
	}
}

func permission(tool string, verdict manifest.Verdict) manifest.Permission {
	return manifest.Permission{Reference: refs("p")[0], Tool: refs(tool)[0], Operations: []manifest.OperationRule{{Class: "*", Verdict: verdict}}}
}

// SPEC-TOOLS 8.4: a rule is about what runs, by whatever name, in whatever case and Unicode form.
func TestT84ARuleHoldsForAllNames(t *testing.T) {
	target := rules.NewTarget([]string{"srv--Delete", "srv", "my-alias", "srv__Delete", "gel\u00f6scht"}, nil, nil, nil)
	for _, name := range []string{"srv--delete", "SRV", "My-Alias", "srv__DELETE", "gelo\u0308scht", "GEL\u00d6SCHT"} {
		set := rules.New(manifest.Rules{Permissions: []manifest.Permission{permission(name, manifest.Deny)}}, nil, nil)
		if d := set.Decide(rules.Caller{Name: "ann"}, target); d.Verdict != manifest.Deny {
			t.Errorf("a rule for %q: %+v", name, d)
		}
		blocked := rules.New(manifest.Rules{Policies: []manifest.Policy{{Global: true, Blocked: refs(name)}}}, nil, nil)
		if d := blocked.Decide(rules.Caller{Name: "ann"}, target); d.Verdict != manifest.Deny {
			t.Errorf("a policy for %q: %+v", name, d)
		}
		role := manifest.Role{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: name}}}
		granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: refs("r")}}, nil)
		if d := granted.Decide(rules.Caller{Name: "ann"}, target); d.Verdict != manifest.Allow {
			t.Errorf("a role for %q: %+v", name, d)
		}
	}
	// The tool's own name is for rules, and not for roles: another provider may have one of that name.
	own := rules.NewTarget([]string{"srv__wipe", "srv"}, []string{"wipe"}, nil, nil)
	forbids := rules.New(manifest.Rules{Policies: []manifest.Policy{{Global: true, Blocked: refs("WIPE")}}}, nil, nil)
	if d := forbids.Decide(rules.Caller{Name: "ann"}, own); d.Verdict != manifest.Deny {
		t.Errorf("a policy for the tool's own name: %+v", d)
	}
	role := manifest.Role{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "wipe"}}}
	grants := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: refs("r")}}, nil)
	if d := grants.Decide(rules.Caller{Name: "ann"}, own); d.Verdict != manifest.Deny {
		t.Errorf("a role for the tool's own name: %+v", d)
	}
	set := rules.New(manifest.Rules{Permissions: []manifest.Permission{permission("srv--dele", manifest.Deny)}}, nil, nil)
	if d := set.Decide(rules.Caller{Name: "ann"}, target); d.Verdict != manifest.Allow {
		t.Errorf("a rule for a part of the name: %+v", d)
	}
}

// SPEC N1: who acts for an agent needs leave to do so, and what both may do.
func TestN1AnAgentNarrowsWhatACallerMayDo(t *testing.T) {
	roles := []manifest.Role{
		{Reference: refs("all")[0], Permissions: []manifest.Right{{Tool: "*"}}},
		{Reference: refs("fetcher")[0], Permissions: []manifest.Right{{Tool: "fetch"}}},
	}
	set := rules.New(manifest.Rules{Roles: roles}, []rules.Binding{
		{Caller: "ci", Roles: refs("all"), MaySpeakFor: []string{"bot"}},
		{Caller: "bot", Roles: refs("fetcher")},
	}, nil)
	fetch, write := rules.NewTarget([]string{"fetch"}, nil, nil, nil), rules.NewTarget([]string{"write"}, nil, nil, nil)
	for _, c := range []struct {
		caller rules.Caller
		target *rules.Target
		want   manifest.Verdict
	}{
		{rules.Caller{Name: "ci"}, write, manifest.Allow},
		{rules.Caller{Name: "ci", Agent: "bot"}, fetch, manifest.Allow},
		{rules.Caller{Name: "ci", Agent: "bot"}, write, manifest.Deny},
		{rules.Caller{Name: "ci", Agent: "Bot"}, fetch, manifest.Deny},
		{rules.Caller{Name: "ci", Agent: "other"}, fetch, manifest.Deny},
		{rules.Caller{Name: "bot", Agent: "ci"}, fetch, manifest.Deny},
	} {
		if d := set.Decide(c.caller, c.target); d.Verdict != c.want {
			t.Errorf("%+v: %+v, want %s", c.caller, d, c.want)
		}
	}
}

// SPEC N1: each entry that limits a caller to toolsets limits it.
func TestN1ToolsetsNarrow(t *testing.T) {
	sets := []rules.Toolset{{Name: "web", Tools: []string{"fetch", "search__*"}}, {Name: "files", Tools: []string{"read[1]", "fetch"}}}
	set := rules.New(manifest.Rules{}, []rules.Binding{{Caller: "ann", Toolsets: refs("web")}, {Group: "staff", Toolsets: refs("files")}}, sets)
	for _, c := range []struct {
		tool   string
		groups []string
		want   manifest.Verdict
	}{
		{"fetch", nil, manifest.Allow},
		{"Search__x", nil, manifest.Allow},
		{"search_x", nil, manifest.Deny},
		{"write", nil, manifest.Deny},
		{"fetch", []string{"staff"}, manifest.Allow},
		{"search__x", []string{"staff"}, manifest.Deny},
		{"read1", []string{"staff"}, manifest.Deny},
	} {
		d := set.Decide(rules.Caller{Name: "ann", Groups: c.groups}, rules.NewTarget([]string{c.tool}, nil, nil, nil))
		if d.Verdict != c.want {
			t.Errorf("%s %v: %+v, want %s", c.tool, c.groups, d, c.want)
		}
	}
}

// SPEC-TOOLS 8.6: who may call no tool of a provider does not read from it either.
func TestT86ReadsFollowCalls(t *testing.T) {
	role := manifest.Role{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "srv__a"}}}
	docs := manifest.Rules{Roles: []manifest.Role{role}}
	bindings := []rules.Binding{{Caller: "ann", Roles: refs("r")}}
	provider := func(name string, tools ...string) *rules.Target {
		p := rules.NewTarget([]string{name}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
		for _, tool := range tools {
			p.Members = append(p.Members, rules.NewTarget([]string{tool, name}, nil, nil, nil))
		}
		return p
	}
	set := rules.New(docs, bindings, nil)
	if !set.Reads(rules.Caller{Name: "ann"}, provider("srv", "srv__a", "srv__b")) {
		t.Error("who may call a tool may not read")
	}
	if set.Reads(rules.Caller{Name: "ann"}, provider("other", "other__a")) {
		t.Error("who may call no tool may read")
	}
	docs.Policies = []manifest.Policy{{Global: true, Blocked: refs("SRV")}}
	if rules.New(docs, bindings, nil).Reads(rules.Caller{Name: "ann"}, provider("srv", "srv__a")) {
		t.Error("a provider that is blocked is read from")
	}
}

// SPEC N1, SPEC-TOOLS 8.6: who reads for an agent needs leave to do so, and the agent may read too.
func TestT86AnAgentNarrowsWhatACallerReads(t *testing.T) {
	srv := rules.NewTarget([]string{"srv"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	srv.Members = []*rules.Target{rules.NewTarget([]string{"srv__a", "srv"}, nil, nil, nil)}
	alone := rules.NewTarget([]string{"alone"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	may := []rules.Binding{{Caller: "ci", MaySpeakFor: []string{"bot", "free"}}}
	blocked := rules.New(manifest.Rules{Policies: []manifest.Policy{{Systems: refs("bot"), Blocked: refs("srv", "alone")}}}, may, nil)
	// A scoped rule for the provider's own name is not one of its tools.
	provider := rules.NewTarget([]string{"srv"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	provider.Members = []*rules.Target{rules.NewTarget([]string{"tool"}, nil, nil, nil)}
	task := rules.New(manifest.Rules{Policies: []manifest.Policy{{Tasks: refs("t"), Blocked: refs("srv")}}}, may, nil)
	for _, c := range []struct {
		set    *rules.Set
		caller rules.Caller
		target *rules.Target
		want   bool
	}{
		{blocked, rules.Caller{Name: "ci"}, srv, true},
		{blocked, rules.Caller{Name: "ci", Agent: "free"}, srv, true},
		{blocked, rules.Caller{Name: "ci", Agent: "bot"}, srv, false},
		{blocked, rules.Caller{Name: "ci", Agent: "bot"}, provider, false},
		{blocked, rules.Caller{Name: "ci", Agent: "bot"}, alone, false},
		{blocked, rules.Caller{Name: "ops", Agent: "root"}, srv, false},
		{task, rules.Caller{Name: "ci", Task: "other"}, srv, true},
		{task, rules.Caller{Name: "ci", Task: "t"}, srv, false},
	} {
		if got := c.set.Reads(c.caller, c.target); got != c.want {
			t.Errorf("%+v reads from %v: %t", c.caller, c.target, got)
		}
	}
}

// SPEC S2: whoever names an agent in requests makes nobody look at all tools again: not for one that it may not act for, and once
// for each other one.
func TestS2AnAgentInRequestsIsJudgedOnce(t *testing.T) {
	set := rules.New(manifest.Rules{Policies: []manifest.Policy{{Global: true, Blocked: refs("x")}}}, []rules.Binding{{Caller: "ci", MaySpeakFor: []string{"bot"}}}, nil)
	srv := rules.NewTarget([]string{"srv"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	tools := []*rules.Target{rules.NewTarget([]string{"srv__a", "srv"}, nil, nil, nil)}
	notLooked := []*rules.Target{nil} // a look at it panics
	srv.Members = notLooked
	if set.Reads(rules.Caller{Name: "ci", Agent: "other"}, srv) {
		t.Error("a caller reads for an agent that it may not act for")
	}
	srv.Members = tools
	for range 2 {
		if !set.Reads(rules.Caller{Name: "ci", Agent: "bot"}, srv) {
			t.Error("a caller does not read for its agent")
		}
		srv.Members = notLooked
	}
}

// SPEC-TOOLS 8.3: a rule that names nothing is told, with its place.
func TestT83RulesThatNameNothing(t *testing.T) {
	docs := manifest.Rules{
		Roles:       []manifest.Role{{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "gone"}}}},
		Policies:    []manifest.Policy{{Reference: refs("p")[0], Systems: refs("nobody", "staff"), Blocked: refs("fetch", "nothing", "*")}},
		Permissions: []manifest.Permission{{Reference: refs("q")[0], Tool: refs("srv__x")[0], Scoped: true, Agents: refs("bot", "nobody2")}},
	}
	set := rules.New(docs, []rules.Binding{{Group: "staff", Roles: refs("r", "missing"), MaySpeakFor: []string{"bot"}}}, nil)
	var got []string
	for _, f := range set.Nameless(rules.Known{
		Tool: func(name string) bool {
			return name == "fetch" || rules.InProvider(name, func(p string) bool { return p == "srv" })
		},
		Caller: func(name string) bool { return name == "cli" },
	}) {
		if f.File() != "a.yaml" {
			t.Errorf("%v is in %s", f, f.File())
		}
		got = append(got, f.Msg)
	}
	for i, word := range []string{`"nobody"`, `"nothing"`, `"nobody2"`, `"missing"`} {
		if i >= len(got) || !strings.Contains(got[i], word) {
			t.Fatalf("%q, want one with %s at %d", got, word, i)
		}
	}
	if len(got) != 4 {
		t.Errorf("%q", got)
	}
}

func BenchmarkDecide(b *testing.B) {
	docs := manifest.Rules{}
	for i := range 1000 {
		p := permission(fmt.Sprint("tool", i), manifest.Allow)
		p.Required = []manifest.Right{{Tool: fmt.Sprint("tool", i)}}
		docs.Permissions = append(docs.Permissions, p)
	}
	docs.Roles = []manifest.Role{{Reference: refs("r")[0], Permissions: []manifest.Right{{Tool: "*"}}}}
	set := rules.New(docs, []rules.Binding{{Caller: "ann", Roles: refs("r")}}, nil)
	var targets []*rules.Target
	for i := range 10_000 {
		targets = append(targets, rules.NewTarget([]string{fmt.Sprint("tool", i)}, nil, nil, nil))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		set.Decide(rules.Caller{Name: "ann", Groups: []string{"staff"}, Task: "t"}, targets[i%len(targets)])
	}
}

// SPEC N1: in a toolset * stands for any characters but /, and nothing else is special.
func TestN1PatternsOfToolsets(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"*":          {"": true, "a": true, "a/b": false},
		"srv*":       {"srv": true, "srv--ab": true, "srv--a/b": false, "srv/": false, "SRV__x": true, "sr": false, "xsrv": false},
		"*__read":    {"a__read": true, "__read": true, "a__read_": false, "read": false},
		"a*b":        {"ab": true, "axxb": true, "a/b": false, "a": false, "aba": false, "ba": false},
		"ab*ba":      {"abba": true, "aba": false},
		"*x*y*":      {"xy": true, "1x2y3": true, "yx": false},
		"a*b*c":      {"abc": true, "a1b2c": true, "acb": false, "abbc": true},
		"**":         {"": true, "ab": true},
		"a[b]*":      {"a[b]c": true, "abc": false},
		"a?*":        {"a?c": true, "abc": false},
		`a\\*`:       {`a\\c`: true, "a*": false},
		"no":         {"no": true, "NO": true, "not": false},
		"caf\u00e9*": {"cafe\u0301s": true, "cafe": false},
	} {
		set := rules.New(manifest.Rules{}, []rules.Binding{{Caller: "ann", Toolsets: refs("web")}}, []rules.Toolset{{Name: "web", Tools: []string{pattern, "other"}}})
		for name, want := range names {
			if got := set.Calls(rules.Caller{Name: "ann"}, rules.NewTarget([]string{name}, nil, nil, nil)); got != want {
				t.Errorf("%q has %q: %t", pattern, name, got)
			}
		}
	}
}

// What an author of a server puts into a tool's name costs no more than the name is read: not each place of it as a whole.
func TestT84NoProviderIsLookedForBehindTheLongestName(t *testing.T) {
	const n = 100_000
	looked := 0
	rules.InProvider(strings.Repeat("_", n)+strings.Repeat("-", n), func(name string) bool {
		if looked++; len(name) > manifest.MaxName {
			t.Fatalf("a provider's name of %d bytes is looked for", len(name))
		}
		return false
	})
	if looked > 2*manifest.MaxName {
		t.Errorf("%d names were looked for", looked)
	}
	longest := strings.Repeat("s", manifest.MaxName)
	for _, between := range []string{"__", "--"} {
		if !rules.InProvider(longest+between+"x", func(name string) bool { return name == longest }) {
			t.Errorf("the longest name with %s is not found", between)
		}
	}
}
