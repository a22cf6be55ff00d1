package capsule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// ping sends a ping at each interval (SPEC D12). Any answer counts, also an error. While
// calls are in flight no ping is sent, since the process may do one thing at a time and each
// call has its own time limit; unless the process has sent nothing for that long.
func (in *incarnation) ping(ctx context.Context, health manifest.Health) {
	ticker := time.NewTicker(health.Interval)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if in.conn.InFlight() > 0 && in.conn.Silent() < in.c.tool.Run.Timeout {
			continue
		}
		err := in.pingOnce(ctx, health.Timeout)
		switch _, refused := errors.AsType[*jsonrpc.Error](err); {
		case err == nil || refused:
			missed = 0
			continue
		case ctx.Err() != nil:
			return
		}
		missed++
		in.c.log.Warn("a capsule does not answer a ping", "tool", in.c.tool.Name, "missed", missed, "of", health.Failures)
		if missed >= health.Failures {
			select {
			case in.unwell <- fmt.Errorf("it left %d pings unanswered, each for %s", missed, health.Timeout):
			default: // it is not well for another reason
			}
			return
		}
	}
}

// pings reports whether the capsule is known to answer pings.
func (c *Capsule) pings() bool {
	return c.tool.Runtime.Handshake == manifest.HandshakeMCP || c.tool.Runtime.Health != nil
}

func (in *incarnation) pingOnce(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := in.conn.Call(ctx, rpc.Request{Method: "ping", Own: true})
	return err
}
