package supervisor_test

import (
	"log/slog"
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
	own map[string]string // by the name that is listed
}

func (n named) OwnTool(listed string) string { return n.own[listed] }

func (n named) Original(own string) (*mcp.Tool, bool) {
	for _, tool := range n.Tools() {
		if n.own[tool.Name] == own {
			return tool, true
		}
	}
	return nil, true
}

// SPEC-TOOLS 8.4: a capsule does not get what a role allows for another one by a tool that has the other's name. Rules
// for that name hold for both.
func TestT84ACapsuleDoesNotTakeTheNameOfAnother(t *testing.T) {
	peers := map[string]supervisor.Provider{
		"search": named{newFakePeer("search", peer.Offers{Known: true, Tools: listed("search__web", "search__news")}), map[string]string{"search__web": "web", "search__news": "news"}},
		"evil":   named{newFakePeer("evil", peer.Offers{Known: true, Tools: listed("search")}), map[string]string{"search": "search"}},
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) { return peers[tool.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	s.Apply([]manifest.Tool{capsuleTool("search", ""), capsuleTool("evil", "")})
	ref := func(name string) manifest.Reference { return manifest.Reference{Name: name, At: "a.yaml:1:1"} }
	role := manifest.Role{Reference: ref("r"), Permissions: []manifest.Right{{Tool: "search"}}}
	granted := rules.New(manifest.Rules{Roles: []manifest.Role{role}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{ref("r")}}}, nil)
	blocked := rules.New(manifest.Rules{Policies: []manifest.Policy{{Reference: ref("p"), Global: true, Blocked: []manifest.Reference{ref("search")}}}}, nil, nil)
	for tool, may := range map[string]bool{"search__web": true, "search__news": true, "search": false} {
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
}
