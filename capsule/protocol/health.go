package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// Pings reports whether processes are known to answer pings.
func (o *Orla) Pings() bool {
	return o.tool.Runtime.Handshake == manifest.HandshakeMCP || o.tool.Runtime.Health != nil
}

// CheckHealth sends a ping at each interval until ctx ends, or until too many are left unanswered, which is its error
// (SPEC D12). Any answer counts, also an error. While calls are in flight no ping is sent, since the process may do one
// thing at a time and each call has its own time limit; unless the process has sent nothing for that long.
func (p *Peer) CheckHealth(ctx context.Context) error {
	health := p.orla.tool.Runtime.Health
	ticker := time.NewTicker(health.Interval)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if p.InFlight() > 0 && p.Silent() < p.orla.tool.Run.Timeout {
			continue
		}
		err := p.ping(ctx, health.Timeout)
		switch _, refused := errors.AsType[*jsonrpc.Error](err); {
		case err == nil || refused:
			missed = 0
			continue
		case ctx.Err() != nil:
			return nil
		}
		missed++
		p.orla.log.Warn("a capsule does not answer a ping", "tool", p.orla.tool.Name, "missed", missed, "of", health.Failures)
		if missed >= health.Failures {
			return fmt.Errorf("it left %d pings unanswered, each for %s", missed, health.Timeout)
		}
	}
}

func (p *Peer) ping(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := p.Call(ctx, rpc.Request{Method: "ping", Own: true})
	return err
}
