package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/config"
	"github.com/orla-project/orla/internal/discovery"
	"github.com/orla-project/orla/internal/exit"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/wiring"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge/results"
)

// NoToolError is why a tool was not called that does not exist.
type NoToolError struct {
	Found  manifest.Result // what the search found
	Listed []string        // what the capsules offer that might have had the tool
}

func (e *NoToolError) Error() string { return "there is no such tool" }

// Once is a call that is made without a server.
type Once struct {
	Tool      string
	Arguments func(inputSchema any) (json.RawMessage, error)
	Answered  func(result json.RawMessage) error // takes the CallToolResult, before what was started is ended
}

// Call starts what the tool needs, calls it, and ends what was started.
func (o Once) Call(ctx context.Context, cfg *config.Loaded, home string) error {
	found := discovery.Search{Stopped: ctx.Err}.Find(cfg, home)
	if err := ctx.Err(); err != nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the search for tools was ended: %w", err)}
	}
	p, err := wiring.Join(cfg, nil, slog.New(slog.DiscardHandler)) //nolint:contextcheck // a sweep of containers is its engine's, which close ends
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	defer p.Close()
	p.Governance.Set(&found)
	p.Services.Declare(found)
	tried := slices.Clone(discovery.Candidates(found.Tools, o.Tool))
	for i := range tried {
		tried[i].Runtime.Restart.MaxFailures = 1 // who calls once does not wait for another start
	}
	diff := p.Supervisor.Apply(tried)
	if err := diff.Failed[o.Tool]; err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	end := p.KeepAlive(ctx)
	defer end()
	p.Supervisor.Settle(ctx)
	listed := p.Supervisor.Catalog().Tools
	i := slices.IndexFunc(listed, func(t *mcp.Tool) bool { return t.Name == o.Tool })
	if i < 0 {
		lives := p.Supervisor.Lives()
		for _, t := range tried { // what is down has not said what it offers
			life, alive := lives[t.Name]
			gone := life.State == "CRASHED" || life.State == "STOPPED" || len(tried) == 1 && len(listed) == 0
			if alive && gone && (len(tried) == 1 || discovery.BelongsTo(o.Tool, t.Name)) {
				return down(t.Name, life)
			}
		}
		return &NoToolError{Found: found, Listed: namesOf(listed)}
	}
	args, err := o.Arguments(listed[i].InputSchema)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	res, err := p.Supervisor.Call(ctx, peer.Call{Tool: o.Tool, Args: args, Caller: "cli"})
	answer, rpcErr := results.Of(res, err)
	if rpcErr != nil {
		return &exit.Error{Code: exit.Failed, Err: rpcErr}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the answer of %s: %w", o.Tool, err)}
	}
	return o.Answered(raw)
}

// down says why a capsule is not READY.
func down(name string, life peer.Life) error {
	text := fmt.Sprintf("%s is %s: %s", name, life.State, life.Reason)
	if life.Stderr != "" {
		text += "; its last lines on stderr:\n" + life.Stderr
	}
	return &exit.Error{Code: exit.Failed, Err: errors.New(text)}
}
