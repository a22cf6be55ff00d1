package supervisor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// restarted is a peer whose process is another one now, which has yet to say what it offers.
type restarted struct {
	named
	says func() // nil while it does not
}

func (p *restarted) Settle(ctx context.Context, _ turns.Owner) {
	if p.says == nil {
		<-ctx.Done()
		return
	}
	p.says()
}

// SPEC-TOOLS 8.7: what an approved call runs is what the tool's server says since it was started again, by each name of the tool.
// Until it has said that, the call does not go on.
func TestT87AnApprovedCallWaitsForWhatItsServerSaysNow(t *testing.T) {
	offer := func(description string, deletes bool) peer.Offers {
		wipe := listed("box__wipe")
		wipe[0].Description, wipe[0].Annotations = description, &mcp.ToolAnnotations{ReadOnlyHint: !deletes, DestructiveHint: &deletes}
		return peer.Offers{Tools: wipe, Known: true}
	}
	box := capsuleTool("box", "")
	box.Run.Timeout = time.Minute
	tidy := tool("tidy", func(t *manifest.Tool) {
		t.Kind, t.Run.Timeout, t.Resource = manifest.MCP, time.Minute, &manifest.Resource{Server: "box", ServerTool: "wipe"}
	})
	for _, called := range []string{"box__wipe", "tidy"} {
		synctest.Test(t, func(t *testing.T) {
			p := &restarted{named: named{fakePeer: newFakePeer("box", offer("old", false)), own: map[string]string{"box__wipe": "wipe"}}}
			alias := newFakePeer("tidy", peer.Offers{Known: true, Tools: listed("tidy")})
			var before, after *rules.Target
			s := supervisor.New(supervisor.Options{
				Build: map[manifest.Kind]supervisor.Build{
					manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil },
					manifest.MCP:     func(manifest.Tool) (supervisor.Provider, error) { return alias, nil },
				},
				Admit: func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error) {
					return supervisor.Admitted{Approve: func(ctx context.Context, _ *peer.Call, again supervisor.Again) error {
						before = again.Target()
						if err := again.Settle(ctx); err != nil {
							return err
						}
						after = again.Target()
						return again.Place()
					}}, nil
				},
				Log: slog.New(slog.DiscardHandler),
			})
			go func() { _ = s.Serve(t.Context()) }()
			s.Apply([]manifest.Tool{box, tidy})
			synctest.Wait()
			call := func() error {
				_, err := s.Call(t.Context(), peer.Call{Tool: called, Args: json.RawMessage(`{}`)})
				return err
			}
			if err := call(); fault.CodeOf(err) != fault.NotReady || !fault.IsUnsent(err) {
				t.Errorf("%s: its server says nothing: %v", called, err)
			}
			for what, says := range map[string]peer.Offers{"another description": offer("new", false), "other hints": offer("old", true)} {
				p.offer(offer("old", false))
				synctest.Wait()
				p.says = func() { p.offer(says) }
				if err := call(); err != nil || before.Same(after) || before.Definition() == after.Definition() {
					t.Errorf("%s: %s: %v, %q", called, what, err, after.Definition())
				}
				if err := call(); err != nil || !before.Same(after) {
					t.Errorf("%s: %s once more: %v", called, what, err)
				}
			}
		})
	}
}
