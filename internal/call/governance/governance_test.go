package governance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

func blocks(tool string) manifest.Rules {
	at := manifest.Reference{Name: "p", At: "a.yaml:3:1"}
	return manifest.Rules{Policies: []manifest.Policy{{Reference: at, Global: true, Blocked: []manifest.Reference{{Name: tool, At: "a.yaml:4:1"}}}}}
}

func found(r manifest.Rules, names ...string) *manifest.Result {
	all := &manifest.Result{Rules: r}
	for _, name := range names {
		all.Tools = append(all.Tools, manifest.Tool{Name: name, Kind: manifest.Simple})
	}
	return all
}

func configured(t testing.TB, callers ...config.CallerConfig) *config.Loaded {
	t.Helper()
	cfg := &config.Loaded{Config: config.Defaults()}
	cfg.ToolsDir, cfg.Callers = t.TempDir(), callers
	return cfg
}

// admits calls a tool, and returns the code of the refusal.
func admits(t *testing.T, g *governance.Gate, caller, tool string) (code fault.Code, done func()) {
	t.Helper()
	admitted, err := g.Admit(t.Context(), peer.Call{Caller: caller, Tool: tool}, rules.NewTarget([]string{tool}, nil, nil, nil))
	if err != nil {
		code = fault.CodeOf(err)
	}
	return code, func() { admitted.Done(true) }
}

// SPEC-TOOLS 8.3: what is said of a tool holds; the same documents are the same rules, and other ones are told.
func TestT83TheGateHoldsTheRulesOfTheLastSearch(t *testing.T) {
	var g governance.Gate
	cfg := configured(t)
	if code, _ := admits(t, &g, "ann", "a"); code != "" {
		t.Errorf("without a search: %s", code)
	}
	changed := g.Changed()
	g.Set(found(blocks("a"), "a", "b"), cfg)
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the rules")
	}
	for tool, want := range map[string]fault.Code{"a": fault.PermissionDenied, "b": ""} {
		if code, _ := admits(t, &g, "ann", tool); code != want {
			t.Errorf("%s: %q, want %q", tool, code, want)
		}
	}
	was, changed := g.Rules(), g.Changed()
	g.Set(found(blocks("a"), "a", "b", "c"), cfg)
	select {
	case <-changed:
		t.Error("the same rules are told as others")
	default:
	}
	if g.Rules() != was {
		t.Error("the same documents are other rules")
	}
	// orla dev serves one tool, and rules may name others.
	dev := governance.Gate{Partial: true}
	dev.Set(found(blocks("a"), "b"), cfg)
	if code, _ := admits(t, &dev, "ann", "b"); code != "" {
		t.Errorf("orla dev: %s", code)
	}
}

// SPEC-TOOLS 8.3: a document that cannot be read denies every call, also when its folder cannot be read any more.
func TestT83WhatCannotBeReadStaysClosed(t *testing.T) {
	var g governance.Gate
	cfg := configured(t)
	faulty := found(manifest.Rules{}, "a")
	faulty.Problems = []manifest.Problem{{Path: "tools/p.yaml", Severity: manifest.Fault, Denies: true, Err: errors.New("x")}}
	g.Set(faulty, cfg)
	if code, _ := admits(t, &g, "ann", "a"); code != fault.PermissionDenied || !g.Denies() {
		t.Errorf("a faulty document: %q", code)
	}
	if err := g.May(rules.Caller{Name: "ann"}, nil, nil); fault.CodeOf(err) != fault.PermissionDenied {
		t.Errorf("reads: %v", err)
	}
	g.Set(found(manifest.Rules{}, "a"), cfg)
	if g.Denies() {
		t.Error("it is gone, and calls are denied")
	}
}

// SPEC N1: the limits of a caller are given back, and come again with time; one that a reload adds is whole.
func TestN1TheLimitsOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g governance.Gate
		limited := func(l config.LimitsConfig) {
			g.Set(found(manifest.Rules{}, "a"), configured(t, config.CallerConfig{Name: "ann", Limits: l}))
		}
		limited(config.LimitsConfig{CallsInFlight: 2})
		_, first := admits(t, &g, "ann", "a")
		_, _ = admits(t, &g, "ann", "a")
		if code, _ := admits(t, &g, "ann", "a"); code != fault.RateLimited {
			t.Errorf("a third call at one time: %q", code)
		}
		if code, _ := admits(t, &g, "Ann", "a"); code != "" {
			t.Errorf("another caller: %q", code)
		}
		first()
		if code, _ := admits(t, &g, "ann", "a"); code != "" {
			t.Errorf("after the end of one: %q", code)
		}
		limited(config.LimitsConfig{CallsPerMinute: 3})
		for i := range 3 {
			if code, _ := admits(t, &g, "ann", "a"); code != "" {
				t.Fatalf("call %d of three: %q", i+1, code)
			}
		}
		_, err := g.Admit(context.Background(), peer.Call{Caller: "ann", Tool: "a"}, rules.NewTarget([]string{"a"}, nil, nil, nil))
		if f := fault.From(err); fault.CodeOf(err) != fault.RateLimited || f.RetryAfter <= 0 || f.RetryAfter > 20*time.Second {
			t.Errorf("a fourth call in a minute: %v", err)
		}
		time.Sleep(20 * time.Second)
		if code, _ := admits(t, &g, "ann", "a"); code != "" {
			t.Errorf("after 20 s: %q", code)
		}
	})
}

// SPEC-TOOLS 8.3: before anything runs, a rule that names nothing is found, and what only a capsule can know is left.
func TestT83NamesAreCheckedBeforeAnythingRuns(t *testing.T) {
	cfg := configured(t)
	for name, c := range map[string]struct {
		tools []manifest.Tool
		rule  string
		want  string
	}{
		"a tool":                  {[]manifest.Tool{{Name: "a", Kind: manifest.Simple}}, "A", ""},
		"no tool":                 {[]manifest.Tool{{Name: "a", Kind: manifest.Simple}}, "b", `for the tool "b"`},
		"a tool of a server":      {[]manifest.Tool{{Name: "s_1", Kind: manifest.Capsule, Runtime: manifest.Runtime{Generated: true}}}, "s-1--x", ""},
		"no tool beside a server": {[]manifest.Tool{{Name: "s_1", Kind: manifest.Capsule, Runtime: manifest.Runtime{Generated: true}}}, "x", `for the tool "x"`},
		"what a capsule may have": {[]manifest.Tool{{Name: "c", Kind: manifest.Capsule}}, "x", ""},
	} {
		all := &manifest.Result{Rules: blocks(c.rule), Tools: c.tools}
		governance.Check(all, cfg, nil)
		said := ""
		for _, p := range all.Problems {
			said += p.Err.Error()
			if !p.Denies || p.Path != "a.yaml" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// SPEC-TOOLS 8.3: a rule that names nothing says what is wrong with each file that would be the tool, wherever it stands, and not what
// is wrong with other rules in a document of that name.
func TestT83AFileThatWouldBeTheToolIsNamed(t *testing.T) {
	cfg := configured(t)
	all := &manifest.Result{Problems: []manifest.Problem{
		{Path: "tools/x/b.sh", Severity: manifest.Warning, Err: errors.New("is not executable")},
		{Path: "tools/y/B", Severity: manifest.Fault, Err: errors.New("is empty")},
		{Path: "tools/z/other.sh", Severity: manifest.Fault, Err: errors.New("is not named")},
	}, Rules: blocks("b")}
	all.Rules.Policies[0].Blocked = []manifest.Reference{{Name: "b", At: "b.yaml:1:1"}, {Name: "b", At: "b.yaml:2:2"}}
	governance.Check(all, cfg, nil)
	if len(all.Problems) != 5 {
		t.Fatalf("got %v", all.Problems)
	}
	for _, p := range all.Problems[3:] {
		if got := p.Err.Error(); !strings.HasSuffix(got, "; tools/x/b.sh is not executable; tools/y/B is empty") || strings.Count(got, "b.yaml") != 1 {
			t.Errorf("got %s", got)
		}
	}
	var g governance.Gate
	g.Set(all, cfg)
	if more := g.Unnamed(served(t, nil, nil).Catalog(), all); len(more) > 0 {
		t.Errorf("it is said again: %v", more)
	}
}

// SPEC-TOOLS 8.3: a ToolPermission decides in place of roles. One that requires nothing is a warning where callers have roles.
func TestT83APermissionThatOpensAToolIsAWarning(t *testing.T) {
	right := []manifest.Right{{Tool: "a"}}
	op := func(class manifest.OperationClass, verdict manifest.Verdict) []manifest.OperationRule {
		return []manifest.OperationRule{{Class: class, Verdict: verdict}}
	}
	roles := config.CallerConfig{Name: "ann", Roles: []string{"reader"}}
	for name, c := range map[string]struct {
		callers    []config.CallerConfig
		required   []manifest.Right
		operations []manifest.OperationRule
		warned     bool
	}{
		"asks":                    {[]config.CallerConfig{roles}, nil, op("delete", manifest.ApprovalRequired), true},
		"denies a class":          {[]config.CallerConfig{roles}, nil, op("delete", manifest.Deny), true},
		"denies all":              {[]config.CallerConfig{roles}, nil, op("*", manifest.Deny), false},
		"requires the permission": {[]config.CallerConfig{roles}, right, op("delete", manifest.ApprovalRequired), false},
		"nobody has roles":        {[]config.CallerConfig{{Name: "ann"}}, nil, op("delete", manifest.Deny), false},
	} {
		all := &manifest.Result{Tools: []manifest.Tool{{Name: "a", Kind: manifest.Simple}}, Rules: manifest.Rules{
			Roles: []manifest.Role{{Reference: manifest.Reference{Name: "reader", At: "r.yaml:1:1"}, Permissions: right}},
			Permissions: []manifest.Permission{{
				Reference: manifest.Reference{Name: "p", At: "p.yaml:4:9"}, Tool: manifest.Reference{Name: "a", At: "p.yaml:6:3"}, Required: c.required, Operations: c.operations,
			}},
		}}
		cfg := configured(t, c.callers...)
		cfg.Auth.Tokens = []config.TokenConfig{{Name: "ann"}}
		governance.Check(all, cfg, nil)
		warned := false
		for _, p := range all.Problems {
			if p.Severity != manifest.Warning || p.Denies || p.Path != "p.yaml" {
				t.Errorf("%s: %+v", name, p)
			}
			warned = true
		}
		if warned != c.warned {
			t.Errorf("%s: warned: %t", name, warned)
		}
	}
}

// SPEC N1, SPEC-TOOLS 8.3: an entry of callers that is for nobody is a warning: what it limits is not limited for whom it is meant.
func TestN1AnEntryForNobodyIsAWarning(t *testing.T) {
	named := func(name string) config.CallerConfig {
		return config.CallerConfig{Name: name, Roles: []string{"reader"}}
	}
	group := config.CallerConfig{Group: "ops", Roles: []string{"reader"}}
	oauth := config.OAuthConfig{Issuer: "https://login.example", GroupsClaim: "groups"}
	without := config.OAuthConfig{Issuer: "https://login.example"}
	for name, c := range map[string]struct {
		callers []config.CallerConfig
		oauth   config.OAuthConfig
		want    string // "" for no warning
	}{
		"a token":                         {[]config.CallerConfig{named("ann")}, config.OAuthConfig{}, ""},
		"callers without a token":         {[]config.CallerConfig{named("stdio"), named("cli"), named("console"), named("anonymous")}, config.OAuthConfig{}, ""},
		"all on this machine":             {[]config.CallerConfig{named("local")}, config.OAuthConfig{}, `callers[0]: no caller or agent has the name "local", so that the entry holds for nobody, and limits nobody; callers on this machine are "stdio", "cli" and "console"`},
		"an agent":                        {[]config.CallerConfig{{Name: "ann", MaySpeakFor: []string{"bot"}}, named("bot")}, config.OAuthConfig{}, ""},
		"a subject":                       {[]config.CallerConfig{named("oauth:bob")}, oauth, ""},
		"a group":                         {[]config.CallerConfig{group}, oauth, ""},
		"another case":                    {[]config.CallerConfig{named("Ann")}, config.OAuthConfig{}, `callers[0]: no caller or agent has the name "Ann", so that the entry holds for nobody, and limits nobody; did you mean "ann"?`},
		"an own name in another case":     {[]config.CallerConfig{named("ann"), named("CLI")}, config.OAuthConfig{}, `callers[1]: no caller or agent has the name "CLI"`},
		"a misspelt name":                 {[]config.CallerConfig{named("an")}, config.OAuthConfig{}, "auth.tokens names callers"},
		"a subject without what it is of": {[]config.CallerConfig{named("bob")}, oauth, `such as "oauth:bob"`},
		"a subject without an issuer":     {[]config.CallerConfig{named("oauth:bob")}, config.OAuthConfig{}, `the name "oauth:bob"`},
		"a group without a claim":         {[]config.CallerConfig{group}, without, `no caller is in the group "ops"`},
		"a group without an issuer":       {[]config.CallerConfig{group}, config.OAuthConfig{GroupsClaim: "groups"}, `no caller is in the group "ops"`},
	} {
		cfg := configured(t, c.callers...)
		cfg.Auth.Tokens, cfg.Auth.OAuth = []config.TokenConfig{{Name: "ann"}}, c.oauth
		all := found(manifest.Rules{Roles: []manifest.Role{{Reference: manifest.Reference{Name: "reader"}}}}, "a")
		governance.Check(all, cfg, nil)
		said := ""
		for _, p := range all.Problems {
			if p.Severity != manifest.Warning || p.Denies || said != "" {
				t.Errorf("%s: %+v", name, p)
			}
			said = p.Err.Error()
		}
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// SPEC-TOOLS 8.6: while every call is denied, no caller sees anything. Who could see all tools may read the metrics still; after
// a start nobody knows who could.
func TestT86WhatIsClosedShowsNothing(t *testing.T) {
	target := rules.NewTarget([]string{"x"}, nil, nil, nil)
	ann := rules.Caller{Name: "ann"}
	cfg := configured(t)
	faulty := func() *manifest.Result {
		all := found(manifest.Rules{}, "x")
		all.Problems = []manifest.Problem{{Path: "a.yaml", Severity: manifest.Fault, Err: errors.New("faulty"), Denies: true}}
		return all
	}
	g := governance.Gate{}
	g.Set(found(manifest.Rules{}, "x"), cfg)
	if set := g.Rules(); !set.Calls(ann, target) || set.Narrowed(ann) {
		t.Error("without rules not all is seen")
	}
	g.Set(faulty(), cfg)
	set := g.Rules()
	if set.Calls(ann, target) || set.Reads(ann, target) || set.Decide(ann, target).Verdict != manifest.Deny {
		t.Error("a tool is seen while every call is denied")
	}
	if set.Narrowed(ann) {
		t.Error("who could see all tools may not read the metrics")
	}
	if g.Set(faulty(), cfg); g.Rules() != set {
		t.Error("lists are made again though nothing has changed")
	}
	if g.Set(found(manifest.Rules{}, "x"), cfg); !g.Rules().Calls(ann, target) {
		t.Error("what is readable again is not in force")
	}
	var started governance.Gate
	if started.Set(faulty(), cfg); started.Rules().Calls(ann, target) || !started.Rules().Narrowed(ann) {
		t.Error("after a start something is seen while every call is denied")
	}
}

// SPEC-TOOLS 8.8: what the rules say of a call is noted in it, also when they have changed since it was admitted.
func TestT88WhatTheRulesSayIsNotedInTheCall(t *testing.T) {
	var g governance.Gate
	cfg := configured(t, config.CallerConfig{Name: "ann"})
	target := rules.NewTarget([]string{"a"}, nil, nil, nil)
	g.Set(found(blocks("b"), "a", "b"), cfg)
	var noted peer.Decision
	admitted, err := g.Admit(t.Context(), peer.Call{Caller: "ann", Tool: "a", Decided: &noted}, target)
	if err != nil || noted.Verdict != string(manifest.Allow) {
		t.Fatalf("%+v, %v", noted, err)
	}
	g.Set(found(blocks("a"), "a", "b"), cfg)
	refused := admitted.Judge.May(target)
	if refused == nil || noted.Verdict != string(manifest.Allow) {
		t.Fatalf("%+v, %+v", noted, refused)
	}
	if refused.Note(); noted.Verdict != string(manifest.Deny) || noted.Rule == "" {
		t.Errorf("%+v", noted)
	}
	noted = peer.Decision{}
	if _, err := g.Admit(t.Context(), peer.Call{Caller: "ann", Tool: "a", Decided: &noted}, target); err == nil || noted.Verdict != string(manifest.Deny) || noted.Rule == "" {
		t.Errorf("%+v, %v", noted, err)
	}
}
