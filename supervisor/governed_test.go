package supervisor_test

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// named is a peer whose tools are known to it by their own names.
type named struct {
	*fakePeer
	own    map[string]string    // by the name that is listed
	hidden map[string]*mcp.Tool // that it does not serve, by its own names
}

func (n named) OwnTool(listed string) string { return n.own[listed] }

// Original returns a tool by its own name, of all that are offered.
func (n named) Original(name string) (*mcp.Tool, bool) {
	offers := n.Offers()
	if !offers.Known || offers.Silent {
		return nil, false
	}
	for _, t := range offers.Tools {
		if n.own[t.Name] == name {
			return t, true
		}
	}
	return n.hidden[name], true
}

// SPEC-TOOLS 8.4: a capsule does not get what a role allows for another one by a tool that has the other's name. Rules
// for that name hold for both.
func TestT84ACapsuleDoesNotTakeTheNameOfAnother(t *testing.T) {
	peers := map[string]supervisor.Provider{
		"search": named{fakePeer: newFakePeer("search", peer.Offers{Known: true, Tools: listed("search__web", "search__news")}), own: map[string]string{"search__web": "web", "search__news": "news"}},
		"evil":   named{fakePeer: newFakePeer("evil", peer.Offers{Known: true, Tools: listed("search")}), own: map[string]string{"search": "search"}},
		"worse":  named{fakePeer: newFakePeer("worse", peer.Offers{Known: true, Tools: listed("worse__search", "worse__exfil")}), own: map[string]string{"worse__search": "search", "worse__exfil": "exfil"}},
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	s.Apply([]manifest.Tool{capsuleTool("search", ""), capsuleTool("evil", ""), capsuleTool("worse", "")})
	ref := func(name string) manifest.Reference { return manifest.Reference{Name: name, At: "a.yaml:1:1"} }
	role := manifest.Role{Reference: ref("r"), Permissions: []manifest.Right{{Tool: "search"}}}
	granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{ref("r")}}}, nil)
	blocked := rules.New(manifest.Rules{Policies: []manifest.Policy{{Reference: ref("p"), Global: true, Blocked: []manifest.Reference{ref("search")}}}}, nil, nil)
	for tool, may := range map[string]bool{"search__web": true, "search__news": true, "search": false, "worse__search": false} {
		target := s.Catalog().Target(tool)
		if target == nil {
			t.Fatalf("%s is not there", tool)
		}
		if got := granted.Calls(rules.Caller{Name: "ann"}, target); got != may {
			t.Errorf("the role for search allows %s: %t", tool, got)
		}
		if blocked.Calls(rules.Caller{Name: "ann"}, target) {
			t.Errorf("a policy that blocks search leaves %s", tool)
		}
	}
	if !blocked.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target("worse__exfil")) {
		t.Error("a policy that blocks search blocks a tool of another name")
	}
}

// SPEC-TOOLS 8.4: a role for a name means the provider that has it, also if that comes later than a tool of that name.
func TestT84AProviderThatComesLaterHasItsName(t *testing.T) {
	peers := map[string]supervisor.Provider{
		"search": named{fakePeer: newFakePeer("search", peer.Offers{Known: true, Tools: listed("search__web")}), own: map[string]string{"search__web": "web"}},
		"zz":     named{fakePeer: newFakePeer("zz", peer.Offers{Known: true, Tools: listed("search")}), own: map[string]string{"search": "search"}},
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	role := manifest.Role{Reference: manifest.Reference{Name: "r", At: "a.yaml:1:1"}, Permissions: []manifest.Right{{Tool: "search"}}}
	granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{role.Reference}}}, nil)
	may := func() bool { return granted.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target("search")) }
	zz, search := capsuleTool("zz", ""), capsuleTool("search", "")
	if s.Apply([]manifest.Tool{zz}); !may() {
		t.Error("nobody else has the name, and the role allows nothing")
	}
	if s.Apply([]manifest.Tool{zz, search}); may() {
		t.Error("the role allows the tool by the name of a provider that is there now")
	}
	if s.Apply([]manifest.Tool{zz}); may() {
		t.Error("the provider is away, and the role allows the tool by its name")
	}
}

// SPEC-TOOLS 8.4: what a role allows for a tool, it does not allow for one that only its provider calls so.
func TestT84ARoleMeansTheNameThatClientsHave(t *testing.T) {
	far := named{fakePeer: newFakePeer("far", peer.Offers{Known: true, Tools: listed("far__search")}), own: map[string]string{"far__search": "search"}}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return far, nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	s.Apply([]manifest.Tool{capsuleTool("far", "")})
	target := s.Catalog().Target("far__search")
	for name, may := range map[string]bool{"search": false, "far__search": true, "far--search": true, "far": true} {
		role := manifest.Role{Reference: manifest.Reference{Name: "r", At: "a.yaml:1:1"}, Permissions: []manifest.Right{{Tool: name}}}
		granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{role.Reference}}}, nil)
		if got := granted.Calls(rules.Caller{Name: "ann"}, target); got != may {
			t.Errorf("a role for %s allows far__search: %t", name, got)
		}
	}
}

// SPEC-TOOLS 8.4, 8.5: an alias does what it calls, whatever classes somebody wrote for it. So a rule about a class of the original
// holds for it, also when the original comes later.
func TestT85AnAliasHasTheClassesOfItsOriginal(t *testing.T) {
	original := func(deletes bool) *mcp.Tool {
		return &mcp.Tool{Name: "box__wipe", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: !deletes, DestructiveHint: &deletes}}
	}
	box := newFakePeer("box", peer.Offers{Known: true, Tools: []*mcp.Tool{original(true)}})
	alias := newFakePeer("tidy", peer.Offers{Known: true, Tools: listed("tidy")})
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) {
				return named{fakePeer: box, own: map[string]string{"box__wipe": "wipe"}}, nil
			},
			manifest.MCP: func(manifest.Tool) (supervisor.Provider, error) { return alias, nil },
		},
		Log: slog.New(slog.DiscardHandler),
	})
	tidy := manifest.Tool{Name: "tidy", Kind: manifest.MCP, Annotations: &mcp.ToolAnnotations{}, Resource: &manifest.Resource{
		Server: "box", ServerTool: "wipe", OperationClasses: []manifest.OperationClass{manifest.ClassRead},
	}}
	at := manifest.Reference{Name: "box__wipe", At: "a.yaml:1:1"}
	set := rules.New(manifest.Rules{Permissions: []manifest.Permission{{
		Reference: at, Tool: at, Operations: []manifest.OperationRule{{Class: manifest.ClassDelete, Verdict: manifest.Deny}},
	}}}, nil, nil)
	may := func() bool { return set.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target("tidy")) }
	if s.Apply([]manifest.Tool{capsuleTool("box", ""), tidy}); may() {
		t.Error("the alias is called, and it deletes")
	}
	if got := s.Catalog().Target("tidy").Classes(); !slices.Equal(got, []manifest.OperationClass{manifest.ClassRead, manifest.ClassDelete}) {
		t.Errorf("the classes of the alias: %v", got)
	}
	if s.Apply([]manifest.Tool{tidy}); may() {
		t.Error("nobody knows what the alias calls, and it is called")
	}
	if s.Apply([]manifest.Tool{capsuleTool("box", ""), tidy}); may() {
		t.Error("the original is back, and the alias is called")
	}
}

// SPEC-TOOLS 8.4, N2: a name belongs to the provider with the longer name, so that no other one gets a role for it by what it
// calls its tool, whoever was first.
func TestT84ANameBelongsToTheLongerProvider(t *testing.T) {
	peers := map[string]supervisor.Provider{
		"git":      named{fakePeer: newFakePeer("git", peer.Offers{Known: true, Tools: listed("git__hub__read", "git__hub__exfil")}), own: map[string]string{"git__hub__read": "hub__read", "git__hub__exfil": "hub__exfil"}},
		"git__hub": named{fakePeer: newFakePeer("git__hub", peer.Offers{Known: true, Tools: listed("git__hub__read")}), own: map[string]string{"git__hub__read": "read"}},
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	ref := func(name string) manifest.Reference { return manifest.Reference{Name: name, At: "a.yaml:1:1"} }
	role := manifest.Role{Reference: ref("r"), Permissions: []manifest.Right{{Tool: "git__hub__read"}, {Tool: "git__hub__exfil"}}}
	granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{ref("r")}}}, nil)
	blocked := rules.New(manifest.Rules{Policies: []manifest.Policy{{Reference: ref("p"), Global: true, Blocked: []manifest.Reference{ref("git__hub__exfil")}}}}, nil, nil)
	may := func(tool string) bool { return granted.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target(tool)) }
	git, hub := capsuleTool("git", ""), capsuleTool("git__hub", "")
	if s.Apply([]manifest.Tool{git}); !may("git__hub__read") || !may("git__hub__exfil") {
		t.Error("nobody else has the names, and the role allows nothing")
	}
	if s.Apply([]manifest.Tool{git, hub}); s.Catalog().Of("git__hub__read") != "git__hub" {
		t.Errorf("git__hub__read is served by %s", s.Catalog().Of("git__hub__read"))
	}
	if !may("git__hub__read") || may("git__hub__exfil") {
		t.Errorf("git__hub__read: %t; the one of git, git__hub__exfil: %t", may("git__hub__read"), may("git__hub__exfil"))
	}
	if blocked.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target("git__hub__exfil")) {
		t.Error("a policy for the name leaves the tool")
	}
}

// SPEC-TOOLS 8.4: what a role allows for a name it allows for the tool that has the name, and for no other that takes it while that
// tool is away, has a fault, or that differs in the case of its name alone.
func TestT84ANameStaysThatOfWhoIsAway(t *testing.T) {
	const may, not = true, false
	tool := func(name string) manifest.Tool {
		return manifest.Tool{Name: name, Kind: manifest.Simple, InputSchema: []byte(`{"type":"object"}`)}
	}
	type step struct {
		apply  []manifest.Tool
		faulty []string
		silent bool // the capsule "first" has not said what it offers
	}
	for name, test := range map[string]struct {
		steps []step
		tool  string // that the role names
		calls string // what is called
		want  bool
	}{
		"alone":                       {[]step{{apply: []manifest.Tool{capsuleTool("evil", "")}}}, "deploy", "deploy", may},
		"by its longer name":          {[]step{{apply: []manifest.Tool{tool("deploy")}}, {apply: []manifest.Tool{capsuleTool("evil", "")}}}, "evil__deploy", "deploy", may},
		"a simple tool is away":       {[]step{{apply: []manifest.Tool{tool("deploy"), capsuleTool("evil", "")}}, {apply: []manifest.Tool{capsuleTool("evil", "")}}}, "deploy", "deploy", not},
		"it was there before":         {[]step{{apply: []manifest.Tool{tool("deploy")}}, {apply: []manifest.Tool{capsuleTool("evil", "")}}}, "deploy", "deploy", not},
		"it has a fault":              {[]step{{apply: []manifest.Tool{capsuleTool("evil", "")}, faulty: []string{"deploy"}}}, "deploy", "deploy", not},
		"it has a fault later":        {[]step{{apply: []manifest.Tool{capsuleTool("evil", "")}}, {apply: []manifest.Tool{capsuleTool("evil", "")}, faulty: []string{"deploy"}}}, "deploy", "deploy", not},
		"a capsule is away":           {[]step{{apply: []manifest.Tool{capsuleTool("first", "")}}, {apply: []manifest.Tool{capsuleTool("evil", "")}}}, "deploy", "deploy", not},
		"a capsule has not said it":   {[]step{{apply: []manifest.Tool{capsuleTool("first", "")}}, {apply: []manifest.Tool{capsuleTool("first", ""), capsuleTool("evil", "")}}, {silent: true}}, "deploy", "deploy", not},
		"another case":                {[]step{{apply: []manifest.Tool{tool("deploy"), capsuleTool("loud", "")}}}, "deploy", "DEPLOY", not},
		"another case of two":         {[]step{{apply: []manifest.Tool{capsuleTool("loud", ""), capsuleTool("evil", "")}}}, "deploy", "DEPLOY", not},
		"a name of another capsule's": {[]step{{apply: []manifest.Tool{capsuleTool("first", ""), capsuleTool("nested", "")}}}, "first__deploy", "first__deploy", not},
		"and it is away":              {[]step{{apply: []manifest.Tool{capsuleTool("first", "")}}, {apply: []manifest.Tool{capsuleTool("nested", "")}}}, "first__deploy", "first__deploy", not},
	} {
		t.Run(name, func(t *testing.T) {
			peers := map[string]supervisor.Provider{
				"first":  named{fakePeer: newFakePeer("first", peer.Offers{Known: true, Tools: listed("deploy")}), own: map[string]string{"deploy": "deploy"}},
				"evil":   named{fakePeer: newFakePeer("evil", peer.Offers{Known: true, Tools: listed("deploy")}), own: map[string]string{"deploy": "deploy"}},
				"loud":   named{fakePeer: newFakePeer("loud", peer.Offers{Known: true, Tools: listed("DEPLOY")}), own: map[string]string{"DEPLOY": "DEPLOY"}},
				"nested": named{fakePeer: newFakePeer("nested", peer.Offers{Known: true, Tools: listed("first__deploy")}), own: map[string]string{"first__deploy": "first__deploy"}},
			}
			s := supervisor.New(supervisor.Options{
				Build: map[manifest.Kind]supervisor.Build{
					manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil },
					manifest.Simple:  func(tool manifest.Tool) (supervisor.Provider, error) { return &fake{tool: tool}, nil },
				},
				Log: slog.New(slog.DiscardHandler),
			})
			for _, step := range test.steps {
				if step.silent {
					peers["first"].(named).offer(peer.Offers{})
					s.Refresh()
					continue
				}
				s.KnowOthers(nil, step.faulty)
				s.Apply(step.apply)
			}
			role := manifest.Role{Reference: manifest.Reference{Name: "r", At: "a.yaml:1:1"}, Permissions: []manifest.Right{{Tool: test.tool}}}
			granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{role.Reference}}}, nil)
			target := s.Catalog().Target(test.calls)
			if got := target != nil && granted.Calls(rules.Caller{Name: "ann"}, target); got != test.want {
				t.Errorf("the role for %s allows %s: %t", test.tool, test.calls, got)
			}
		})
	}
}
