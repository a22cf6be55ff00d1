// Package oneshot makes one call of a tool, or says what the rules say of one, without a server.
package oneshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/supervisor"
)

// NoToolError is the error of a call of a tool that does not exist.
type NoToolError struct {
	Found  manifest.Result // what the search found
	Listed []string        // what the capsules that might have had the tool offer
}

func (e *NoToolError) Error() string { return "there is no such tool" }

// Call is a call that is made without a server.
type Call struct {
	Tool      string
	Arguments func(inputSchema any) (json.RawMessage, error)
	Answered  func(result json.RawMessage) error // is called with the CallToolResult, before the processes are ended
	Log       *slog.Logger                       // of what the call needs
}

// Make starts what the tool needs, calls it, and ends what was started.
func (o Call) Make(ctx context.Context, cfg *config.Loaded, home string) error {
	found := discovery.Search{Stopped: ctx.Err}.Find(cfg, home)
	if err := ctx.Err(); err != nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the search for tools was ended: %w", err)}
	}
	tried := slices.Clone(discovery.Candidates(found.Tools, o.Tool))
	for i := range tried {
		tried[i].Runtime.Restart.MaxFailures = 1 // who calls once does not wait for another start
	}
	p, diff, err := o.prepare(cfg, found, tried) //nolint:contextcheck // the sweep of containers has its own time limit
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	defer p.Close() //nolint:contextcheck // what is being written is finished
	if err := diff.Failed[o.Tool]; err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	end := p.KeepAlive(ctx)
	defer end()
	p.Supervisor.Settle(ctx)
	listed := p.Supervisor.Catalog().Tools
	i := slices.IndexFunc(listed, func(t *mcp.Tool) bool { return t.Name == o.Tool })
	if i < 0 && p.Supervisor.Catalog().Withheld(o.Tool) != nil {
		_, err := p.Supervisor.Call(ctx, peer.Call{Tool: o.Tool, Caller: "cli"})
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	if i < 0 {
		lives := p.Supervisor.Lives()
		for _, t := range tried { // a capsule that is down has not said what it offers
			life, alive := lives[t.Name]
			gone := life.State == "CRASHED" || life.State == "STOPPED" || len(tried) == 1 && len(listed) == 0
			if alive && gone && (len(tried) == 1 || discovery.BelongsTo(o.Tool, t.Name)) {
				return down(t.Name, life)
			}
		}
		return &NoToolError{Found: found, Listed: peer.NamesOf(listed)}
	}
	args, err := o.Arguments(listed[i].InputSchema)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	call := peer.Call{Tool: o.Tool, Args: args, Caller: "cli"}
	res, err := p.Supervisor.Call(ctx, call)
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Code == fault.Timeout && cfg.OriginOf("timeout").Rank != config.FromFlag {
		// An install ends with this process, so that the next command would begin with it again.
		waited, failure := p.Packages.Await(ctx, o.Tool)
		if failure != nil {
			return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", o.Tool, failure)}
		}
		if waited {
			res, err = p.Supervisor.Call(ctx, call)
		}
	}
	if err != nil {
		of := p.Supervisor.Catalog().Of(o.Tool)
		life := p.Supervisor.Lives()[of]
		end() // so that all of its stderr has been read
		life.Stderr = p.Supervisor.Lives()[of].Stderr
		err = failed(err, of, life)
	}
	answer, rpcErr := results.Of(res, err)
	if res.Ended != nil { // and so there is no error
		res.Ended(results.Answer{Result: answer}.Outcome(!answer.IsError, fmt.Sprint(answer.Meta[results.MetaToolCode])), 0)
	}
	if rpcErr != nil {
		return &exit.Error{Code: exit.Failed, Err: rpcErr}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the answer of %s: %w", o.Tool, err)}
	}
	return o.Answered(raw)
}

// prepare joins the parts, and applies the tools that are tried. The remembered lists of capsules are
// used only if the tool is in them, since capsules may offer others now.
func (o Call) prepare(cfg *config.Loaded, found manifest.Result, tried []manifest.Tool) (*wiring.Parts, supervisor.Diff, error) {
	join := func(remember bool) (*wiring.Parts, supervisor.Diff, error) {
		p, err := wiring.Join(cfg, nil, nil, o.Log)
		if err != nil {
			return nil, supervisor.Diff{}, err
		}
		if !remember {
			p.Lists = p.Lists.Renew()
		}
		p.Governance.Partial = true
		p.Governance.Set(&found, cfg)
		p.Services.Declare(found)
		p.Supervisor.KnowOthers(found.Tools, found.Faulty())
		return p, p.Supervisor.Apply(tried), nil
	}
	p, diff, err := join(true)
	if err != nil {
		return nil, diff, err
	}
	if c := p.Supervisor.Catalog(); len(c.Tools) == 0 || c.Of(o.Tool) != "" {
		return p, diff, nil
	}
	p.Close()
	return join(false)
}

// failed returns the error of a call for the person who made it: a capsule that was started for this
// call is not started again, and its stderr is shown nowhere else.
func failed(err error, name string, life peer.Life) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != fault.Crashed && f.Code != fault.StartFailed {
		return err
	}
	if f.Unsent && life.State != "" { // a simple tool has no state
		return fault.New(f.Code, "%s", downText(name, life))
	}
	return fault.New(f.Code, "%s", withStderr(f.Reason, life))
}

// down says why a capsule is not READY.
func down(name string, life peer.Life) error {
	return &exit.Error{Code: exit.Failed, Err: errors.New(downText(name, life))}
}

func downText(name string, life peer.Life) string {
	return withStderr(fmt.Sprintf("%s is %s: %s", name, life.State, life.Reason), life)
}

func withStderr(text string, life peer.Life) string {
	if life.Stderr != "" {
		text += "; its last lines on stderr:\n" + life.Stderr
	}
	return text
}
