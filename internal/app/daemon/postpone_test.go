package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// idle lives and offers nothing.
type idle struct{ supervisor.Peer }

func (idle) Tools() []*mcp.Tool              { return nil }
func (idle) Offers() *peer.Offers            { return &peer.Offers{} }
func (idle) Life() peer.Life                 { return peer.Life{} }
func (idle) Updated() <-chan string          { return nil }
func (idle) Serve(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// SPEC S1: a reload costs in proportion to the tools, whatever lives.
func TestS1AReloadLooksForLivingToolsInProportion(t *testing.T) {
	costtest.Check(t, 500, func(n int) func() {
		s := &server{Parts: &wiring.Parts{Supervisor: supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{manifest.Simple: func(manifest.Tool) (supervisor.Provider, error) { return idle{}, nil }},
			Log:   slog.New(slog.DiscardHandler),
		})}}
		found := manifest.Result{Tools: make([]manifest.Tool, n)}
		for i := range found.Tools {
			found.Tools[i] = manifest.Tool{Name: fmt.Sprintf("tool%06d", i), Kind: manifest.Simple}
		}
		s.Supervisor.Apply(found.Tools)
		if living := s.Supervisor.Living(); len(living) != n {
			t.Fatalf("%d of %d tools live", len(living), n)
		}
		cfg := &config.Loaded{}
		return func() {
			s.postpone(&found, cfg)
			s.keepLiving(&found, cfg)
		}
	})
}
