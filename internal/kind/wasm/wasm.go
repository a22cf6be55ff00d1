// Package wasm handles calls of WebAssembly modules (SPEC-TOOLS 3.7): it loads the module, sends it
// the call by the tool contract v1, and reads its answer.
//
// It keeps no state of a call: each call makes one attempt, with a new instance and current
// credentials. Package internal/wasm runs and limits modules.
//
// Its invariant: no secret that a module was given is in an answer or a log line.
package wasm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/tail"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/manifest"
)

// Keys in the _meta of a result.
const (
	MetaFuelUsed   = "fuel_used"
	MetaMemoryPeak = "memory_peak_bytes"
)

// Options configures a Tool, in addition to its manifest.
type Options struct {
	// Runtime compiles and runs modules. Required.
	Runtime *wasm.Runtime
	// Fetch returns the module at an https:// or oci:// address. Required for those.
	Fetch func(ctx context.Context, address, digest string, pull secret.Ref) ([]byte, error)
	// Slots bounds how many calls run at once. If nil, there is no limit.
	Slots Slots
	// Auth has what credentials are made from. Required for tools with auth.
	Auth auth.Options
	// Log receives what modules write to stderr. Required.
	Log *slog.Logger
}

// Slots are places to run, shared with the tools that run processes.
type Slots interface {
	// Take waits for a place. give returns the place.
	Take(ctx context.Context, owner turns.Owner) (give func(), err error)
}

// Tool handles the calls of one tool of type wasm. Call may be used from any goroutine.
type Tool struct {
	name     string
	resource *manifest.Resource
	timeout  string
	most     int64 // largest size of an answer, in bytes
	contract *contract.Tool
	auth     *auth.Source
	module   *source
	opts     Options
	listed   []*mcp.Tool
	quota    tail.Quota // how much of stderr is logged
}

// New returns the Tool for a manifest. It does not read the module.
func New(t manifest.Tool, opts Options) (*Tool, error) {
	spoken, err := contract.For(t)
	if err != nil {
		return nil, err
	}
	return &Tool{
		name:     t.Name,
		resource: t.Resource,
		timeout:  t.Run.Timeout.String(),
		most:     cmp.Or(t.Run.MaxOutput, manifest.DefaultMaxOutput),
		contract: spoken,
		auth:     auth.New(t.Resource.Auth, opts.Auth),
		module:   newSource(*t.Resource.WASM, opts),
		opts:     opts,
		listed:   []*mcp.Tool{t.Listed()},
	}, nil
}

// Tools returns the one tool.
func (t *Tool) Tools() []*mcp.Tool { return t.listed }

// String returns the name of the tool for logs.
func (t *Tool) String() string { return "wasm " + t.name }

// Call makes one attempt. Its error is a *fault.Error.
func (t *Tool) Call(ctx context.Context, call peer.Call) (answer peer.Answer, err error) {
	if t.opts.Slots != nil {
		give, err := t.opts.Slots.Take(ctx, call.Owner)
		if err != nil {
			return peer.Answer{}, fault.Unsent(err)
		}
		defer give()
	}
	err = t.auth.Do(ctx, func(c auth.Credentials) error {
		answer, err = t.attempt(ctx, call.Owner, t.contract.Exchange(ctx, call, c), c)
		return err
	})
	return answer, err
}

// attempt runs the module for one call.
func (t *Tool) attempt(ctx context.Context, owner turns.Owner, x *contract.Exchange, c auth.Credentials) (peer.Answer, error) {
	outcome, err := t.run(ctx, owner, t.request(x, c).JSON())
	t.logStderr(ctx, c.RedactBytes(outcome.Stderr))
	var answer peer.Answer
	if err == nil {
		answer, err = x.ModuleAnswer(outcome.Stdout)
	}
	return measured(answer, outcome), err
}

// run runs the module. If it was released before it could start, run loads it once more.
func (t *Tool) run(ctx context.Context, owner turns.Owner, request []byte) (wasm.Outcome, error) {
	for {
		m, err := t.module.get(ctx, owner)
		if err != nil {
			return wasm.Outcome{}, fault.Unsent(err)
		}
		outcome, err := m.For(owner).Run(ctx, request, t.most)
		if !errors.Is(err, wasm.ErrEvicted) {
			return outcome, err
		}
		t.module.drop(m)
	}
}

// request returns the input of the module.
func (t *Tool) request(x *contract.Exchange, c auth.Credentials) contract.ModuleRequest {
	shown := http.Header{}
	c.Apply(shown)
	headers := map[string]string{}
	for name := range maps.Keys(shown) {
		headers[name] = shown.Get(name)
	}
	return x.Module(contract.ModuleRequest{
		Capabilities: t.resource.Capabilities,
		RiskLevel:    string(t.resource.Risk),
		Runtime: contract.ModuleRuntime{
			IsolationMode: string(manifest.IsolationWASM), Timeout: t.timeout,
			MaxMemoryBytes: t.resource.WASM.MaxMemory, Fuel: t.resource.WASM.Fuel,
		},
		Auth: contract.ModuleAuth{Headers: headers},
	})
}

// logStderr logs the lines that the module wrote to stderr, within the tool's quota.
func (t *Tool) logStderr(ctx context.Context, said []byte) {
	for line := range bytes.Lines(said) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 && t.quota.Allow(len(line), t.reportStderr) {
			t.opts.Log.InfoContext(ctx, "stderr", "tool", t.name, "stream", "stderr", "call_id", callid.From(ctx), "text", string(line))
		}
	}
}

// reportStderr logs how much of stderr was not logged, if any.
func (t *Tool) reportStderr() {
	if lines, bytes := t.quota.Left(); lines > 0 {
		t.opts.Log.Warn("a module printed too much on stderr; these lines are not in the log", "tool", t.name, "lines", lines, "bytes", bytes)
	}
}

// measured adds the usage of the call to an answer, including a failed one.
func measured(answer peer.Answer, took wasm.Outcome) peer.Answer {
	if took.FuelUsed == 0 && took.MemoryPeak == 0 {
		return answer // the module did not run
	}
	if answer.Result == nil {
		answer.Result = &mcp.CallToolResult{}
	}
	answer.Result.Meta = mcp.Meta{MetaFuelUsed: took.FuelUsed, MetaMemoryPeak: took.MemoryPeak}
	return answer
}
