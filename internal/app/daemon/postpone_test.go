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

// idle serves nothing.
type idle struct{}

func (idle) Tools() []*mcp.Tool { return nil }

func (idle) Call(context.Context, peer.Call) (peer.Answer, error) {
	return peer.Answer{}, nil
}

// SPEC S1: a reload costs in proportion to the tools, whatever lives.
func TestS1AReloadLooksForLivingToolsInProportion(t *testing.T) {
	costtest.Check(t, 8000, func(n int) func() {
		s := &server{Parts: &wiring.Parts{Supervisor: supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{manifest.Simple: func(manifest.Tool) (supervisor.Provider, error) { return idle{}, nil }},
			Log:   slog.New(slog.DiscardHandler),
		})}}
		found := manifest.Result{Tools: make([]manifest.Tool, n)}
		for i := range found.Tools {
			found.Tools[i] = manifest.Tool{Name: fmt.Sprintf("tool%06d", i), Kind: manifest.Simple}
		}
		s.Supervisor.Apply(found.Tools)
		cfg := &config.Loaded{}
		return func() {
			s.postpone(&found, cfg)
			s.keepLiving(&found, cfg)
		}
	})
}
