package supervisor_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// servedNames returns the names of the tools in the catalog of a Supervisor.
func servedNames(s *supervisor.Supervisor) (names []string) {
	for _, t := range s.Catalog().Tools {
		names = append(names, t.Name)
	}
	return names
}

// aliasOf is a tool of type mcp of the server box.
func aliasOf(name, tool string) manifest.Tool {
	return manifest.Tool{Name: name, Kind: manifest.MCP, InputSchema: []byte(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{}, Resource: &manifest.Resource{
		Server: "box", ServerTool: tool, OperationClasses: []manifest.OperationClass{manifest.ClassRead},
	}}
}

// governing returns a Supervisor of peers by the names of their manifests, and of aliases and simple tools.
func governing(peers map[string]supervisor.Provider, admit func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error)) *supervisor.Supervisor {
	one := func(tool manifest.Tool) (supervisor.Provider, error) { return &fake{tool: tool}, nil }
	return supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil },
			manifest.Simple:  one, manifest.MCP: one,
		},
		Log: slog.New(slog.DiscardHandler), Admit: admit,
	})
}

// allowed returns which of the tools that are served a role for a tool allows.
func allowed(s *supervisor.Supervisor, role string) (names []string) {
	ref := manifest.Reference{Name: "r", At: "a.yaml:1:1"}
	set := rules.New(manifest.Rules{Roles: []manifest.Role{{Reference: ref, Permissions: []manifest.Right{{Tool: role}}}}},
		[]rules.Binding{{Caller: "ann", Roles: []manifest.Reference{ref}}}, nil)
	for _, name := range servedNames(s) {
		if set.Calls(rules.Caller{Name: "ann"}, s.Catalog().Target(name)) {
			names = append(names, name)
		}
	}
	return names
}

// SPEC-TOOLS 8.4, N2: names that differ in their case alone are one name, which one provider serves: the one whose name it is, whoever was
// first. So no role gives the tool of another.
func TestT84NamesThatDifferInCaseAreOne(t *testing.T) {
	peers := map[string]supervisor.Provider{
		"evil": named{
			fakePeer: newFakePeer("evil", peer.Offers{Known: true, Tools: listed("DEPLOY", "Box__look", "Tidy", "fine", "FINE")}),
			own:      map[string]string{"DEPLOY": "DEPLOY", "Box__look": "Box__look", "Tidy": "Tidy", "fine": "fine", "FINE": "FINE"},
		},
		"box": named{fakePeer: newFakePeer("box", peer.Offers{Known: true, Tools: listed("box__look", "box__wipe")}), own: map[string]string{"box__look": "look", "box__wipe": "wipe"}},
	}
	s := governing(peers, nil)
	s.Apply([]manifest.Tool{capsuleTool("evil", "")})
	s.Apply([]manifest.Tool{capsuleTool("evil", ""), capsuleTool("box", ""), tool("deploy"), aliasOf("tidy", "wipe")})
	if got, want := servedNames(s), []string{"box__look", "box__wipe", "deploy", "fine", "tidy"}; !slices.Equal(got, want) {
		t.Errorf("served: %v, want %v", got, want)
	}
	for role, want := range map[string][]string{
		"deploy": {"deploy"}, "DEPLOY": {"deploy"}, "box__look": {"box__look"}, "BOX--LOOK": {"box__look"}, "tidy": {"box__wipe", "tidy"}, "evil": {"fine"},
	} {
		if got := allowed(s, role); !slices.Equal(got, want) {
			t.Errorf("a role for %s allows %v, want %v", role, got, want)
		}
	}
	said := ""
	for _, p := range s.Problems() {
		said += p.Err.Error() + "\n"
	}
	for _, want := range []string{`the tool "DEPLOY" of evil is not served: deploy`, `the tool "Box__look" of evil is not served: box`} {
		if !strings.Contains(said, want) {
			t.Errorf("no problem says %q:\n%s", want, said)
		}
	}
}

// SPEC-TOOLS 8.4: two manifests whose names differ in their case alone have no name that a role gives anything by.
func TestT84TwoManifestsOfOneNameHaveNone(t *testing.T) {
	s := governing(map[string]supervisor.Provider{
		"box": named{fakePeer: newFakePeer("box", peer.Offers{Known: true, Tools: listed("box__look")}), own: map[string]string{"box__look": "look"}},
		"Box": named{fakePeer: newFakePeer("Box", peer.Offers{Known: true, Tools: listed("Box__wipe")}), own: map[string]string{"Box__wipe": "wipe"}},
	}, nil)
	s.Apply([]manifest.Tool{capsuleTool("box", ""), capsuleTool("Box", "")})
	for role, want := range map[string][]string{"box": nil, "box__look": {"box__look"}, "box--wipe": nil} {
		if got := allowed(s, role); !slices.Equal(got, want) {
			t.Errorf("a role for %s allows %v, want %v", role, got, want)
		}
	}
}

// SPEC-TOOLS 8.4: of two files whose names are one to rules, one is served, and no role gives it anything by that name until somebody has said
// which one it is. Two whose names are the same to a letter are one for roles.
func TestT84AConflictGivesNothing(t *testing.T) {
	s := governing(map[string]supervisor.Provider{
		"box":     named{fakePeer: newFakePeer("box", peer.Offers{Known: true, Tools: listed("box__wipe")}), own: map[string]string{"box__wipe": "wipe"}},
		"git-hub": named{fakePeer: newFakePeer("git-hub", peer.Offers{Known: true, Tools: listed("git-hub__read")}), own: map[string]string{"git-hub__read": "read"}},
		"by-it":   named{fakePeer: newFakePeer("by-it", peer.Offers{Known: true, Tools: listed("by-it--read")}), own: map[string]string{"by-it--read": "read"}},
	}, nil)
	all := []manifest.Tool{capsuleTool("box", ""), capsuleTool("git-hub", ""), aliasOf("Deploy", "wipe"), tool("same"), capsuleTool("by-it", "")}
	for _, test := range []struct {
		faulty []string
		want   map[string][]string
	}{
		{nil, map[string][]string{"deploy": {"Deploy", "box__wipe"}, "git-hub--read": {"git-hub__read"}, "same": {"same"}, "by-it--read": {"by-it--read"}}},
		{[]string{"deploy", "git_hub", "same", "by_it", "box"}, map[string][]string{"box--wipe": {"Deploy", "box__wipe"}, "by-it--read": nil, "by-it__read": {"by-it--read"}, "deploy": nil, "git-hub--read": nil, "git-hub__read": {"git-hub__read"}, "same": {"same"}}},
	} {
		s.KnowOthers(nil, test.faulty)
		s.Apply(all)
		for role, want := range test.want {
			if got := allowed(s, role); !slices.Equal(got, want) {
				t.Errorf("with %v, a role for %s allows %v, want %v", test.faulty, role, got, want)
			}
		}
	}
}

// SPEC-TOOLS 8.4: what a role allows for tools of git_hub by the names that they are listed by, it does not allow for those of git-hub.
func TestT84ANameInDashesIsOfOneProvider(t *testing.T) {
	s := governing(map[string]supervisor.Provider{
		"git_hub": named{
			fakePeer: newFakePeer("git_hub", peer.Offers{Known: true, Tools: listed("git-hub--read", "git-hub--a-b", "git-hub--other")}),
			own:      map[string]string{"git-hub--read": "read", "git-hub--a-b": "a.b", "git-hub--other": "a_b"},
		},
		"git-hub": named{
			fakePeer: newFakePeer("git-hub", peer.Offers{Known: true, Tools: listed("git-hub__read", "git-hub__exfil")}),
			own:      map[string]string{"git-hub__read": "read", "git-hub__exfil": "exfil"},
		},
	}, nil)
	s.Apply([]manifest.Tool{capsuleTool("git_hub", ""), capsuleTool("git-hub", "")})
	for role, want := range map[string][]string{
		"git-hub--read": {"git-hub--read"}, "git_hub__read": {"git-hub--read"}, "git-hub__read": {"git-hub__read"},
		"git-hub--exfil": nil, "git-hub__exfil": {"git-hub__exfil"}, "git-hub": {"git-hub__exfil", "git-hub__read"}, "git-hub--a-b": {"git-hub--a-b"},
	} {
		if got := allowed(s, role); !slices.Equal(got, want) {
			t.Errorf("a role for %s allows %v, want %v", role, got, want)
		}
	}
}

// SPEC-TOOLS 8.5: an alias does what it calls, also where its server does not serve that tool itself.
func TestT85AnAliasHasTheClassesOfAToolThatIsNotServed(t *testing.T) {
	yes := true
	box := named{fakePeer: newFakePeer("box", peer.Offers{Known: true}), hidden: map[string]*mcp.Tool{
		"wipe": {Name: "wipe", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}},
		"look": {Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
	}}
	s := governing(map[string]supervisor.Provider{"box": box}, nil)
	s.Apply([]manifest.Tool{capsuleTool("box", ""), aliasOf("tidy", "wipe"), aliasOf("see", "look"), aliasOf("none", "gone")})
	for name, want := range map[string][]manifest.OperationClass{
		"tidy": {manifest.ClassRead, manifest.ClassDelete}, "see": {manifest.ClassRead}, "none": {manifest.ClassRead},
	} {
		if got := s.Catalog().Target(name).Classes(); !slices.Equal(got, want) {
			t.Errorf("the classes of %s: %v, want %v", name, got, want)
		}
	}
}

// SPEC-TOOLS 8.5: a call of an alias waits until its server has said what the tool does, and is judged by that. If the server says
// nothing in time, the call may do anything.
func TestT85ACallOfAnAliasWaitsForItsServer(t *testing.T) {
	for name, test := range map[string]struct {
		said bool
		want []manifest.OperationClass
	}{
		"said": {true, []manifest.OperationClass{manifest.ClassRead, manifest.ClassDelete}},
		"not":  {false, []manifest.OperationClass{manifest.ClassRead, manifest.ClassWrite, manifest.ClassDelete, manifest.ClassAdmin}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				yes := true
				box := named{fakePeer: newFakePeer("box", peer.Offers{}), hidden: map[string]*mcp.Tool{"wipe": {Name: "wipe", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}}}
				if !test.said {
					box.hidden = nil
				}
				judged := make(chan []manifest.OperationClass, 1)
				s := governing(map[string]supervisor.Provider{"box": box}, func(_ context.Context, _ peer.Call, target *rules.Target) (supervisor.Admitted, error) {
					judged <- target.Classes()
					return supervisor.Admitted{}, nil
				})
				tidy := aliasOf("tidy", "wipe")
				tidy.Run.Timeout = time.Second
				s.Apply([]manifest.Tool{capsuleTool("box", ""), tidy})
				ended := make(chan error, 1)
				go func() {
					_, err := s.Call(t.Context(), peer.Call{Tool: "tidy", Args: []byte(`{}`)})
					ended <- err
				}()
				synctest.Wait()
				if len(judged) > 0 {
					t.Fatalf("the call is judged before the server has said what it offers: %v", <-judged)
				}
				if test.said {
					box.offer(peer.Offers{Known: true})
					s.Refresh()
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if got := <-judged; !slices.Equal(got, test.want) {
					t.Errorf("judged by %v, want %v", got, test.want)
				}
			})
		})
	}
}
