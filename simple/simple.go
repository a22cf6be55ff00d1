// Package simple runs a command once per call (RFC 1 §5, SPEC C).
//
// The process gets the arguments of a call on stdin and as flags; its two streams and its exit code
// become one result. No state remains between calls, and the memory of a call is bounded by the
// limit of its output.
package simple

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// Options is what a Command needs beside its description.
type Options struct {
	// Launcher starts the processes. Required.
	Launcher launch.Launcher
	// Elsewhere says that the processes do not see this machine's programs, but those of the Launcher:
	// it looks up interpreters by their names.
	Elsewhere bool
	// Secrets resolves the secrets that the tool's SecretEnv names, at each attempt. Required if there
	// are any.
	Secrets func(secret.Ref) (secret.Value, error)
	// Slots bounds the processes of all commands that share it. If nil, there is no limit.
	Slots *Slots
	// Environ is the environment that tools may inherit, as environ.Clean returns it.
	Environ []string
	// Packages are what the tool needs in addition to its interpreter. If nil, it needs none.
	Packages *deps.Tool
	// Shared reports whether several callers may call the tool. If so, a caller is not shown what an installer prints.
	// If nil, there is one.
	Shared func() bool
}

// Command handles the calls of one simple tool. Call may be used from any goroutine.
type Command struct {
	tool   manifest.Tool
	opts   Options
	own    *Slots         // limits only this command; nil without max_concurrency
	output *schema.Schema // nil if the tool has no output schema
	cli    *cli           // nil if the tool is not of type cli
	listed []*mcp.Tool
	last   secret.Last

	makeEnviron sync.Once // at the first call, since most of many tools are not called
	madeEnviron []string
}

// environ is the environment without the variables of a single call. It must not be modified.
func (c *Command) environ() []string {
	c.makeEnviron.Do(func() { c.madeEnviron = environ.Of(c.tool, c.opts.Environ) })
	return c.madeEnviron
}

// New returns the Command for a tool.
func New(tool manifest.Tool, opts Options) (*Command, error) {
	c := &Command{tool: tool, opts: opts}
	c.tool.Run.MaxOutput = cmp.Or(tool.Run.MaxOutput, manifest.DefaultMaxOutput)
	if tool.Run.MaxConcurrency > 0 {
		c.own = newSlots(tool.Run.MaxConcurrency)
	}
	if tool.OutputSchema != nil {
		output, err := schema.Compile(tool.OutputSchema)
		if err != nil {
			return nil, fmt.Errorf("%s: mcp.output_schema: %w", tool.Source, err)
		}
		c.output = output
	}
	if tool.Kind == manifest.Cli {
		arguments, err := argumentsOf(tool.Resource.CLI.Args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tool.Source, err)
		}
		c.cli = &cli{CLI: *tool.Resource.CLI, arguments: arguments}
	}
	c.listed = []*mcp.Tool{tool.Listed()}
	return c, nil
}

// Tools returns the one tool of the command.
func (c *Command) Tools() []*mcp.Tool { return c.listed }

// String returns the name of the command for logs.
func (c *Command) String() string { return "simple " + c.tool.Name }

// Call runs the command once and returns its result. An error is always a *fault.Error, which says
// whether a process was started. With an error, the result has what the process printed, if
// anything. Call returns when the process itself has ended, and never waits for a descendant that
// holds its streams open (SPEC C4).
func (c *Command) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	in, err := c.input(ctx, call.Args)
	if err != nil {
		return peer.Answer{}, fault.Unsent(err)
	}
	if err := c.ensurePackages(ctx, call.Client); err != nil {
		return peer.Answer{}, fault.Unsent(err)
	}
	ctx, end := trace.Begin(ctx)
	defer end()
	run, err := c.runInSlots(ctx, in, call.Owner)
	if err != nil {
		return peer.Answer{}, fault.Unsent(err)
	}
	c.work(ctx, run, run.redact)
	res, err := c.answer(ctx, run)
	return peer.Answer{Result: res}, err
}

// lastTurn is how long a call that has ended waits for a turn to work on its output.
const lastTurn = time.Second

// work does work on the output of a process, in the turn of the call's owner if it is large.
func (c *Command) work(ctx context.Context, r *run, work func()) {
	account, size := turns.AccountOf(ctx), len(r.stdout.kept)+len(r.stderr.kept)
	if account.Work(ctx, size, work) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTurn)
	defer cancel()
	if account.Work(ctx, size, work) != nil {
		work()
	}
}

// runInSlots is run. While the process runs, it has a place among those of the command and of all
// commands.
func (c *Command) runInSlots(ctx context.Context, in input, owner turns.Owner) (*run, error) {
	for _, slots := range []*Slots{c.own, c.opts.Slots} {
		give, err := slots.Take(ctx, owner)
		if err != nil {
			return nil, err
		}
		defer give()
	}
	return c.run(ctx, in)
}

// input returns a call's arguments in the form that the tool's process gets.
func (c *Command) input(ctx context.Context, args json.RawMessage) (input, error) {
	if c.cli != nil {
		return c.cli.input(ctx, args)
	}
	return buildInput(ctx, args, c.tool.Run.Arguments)
}

// run is the outcome of one process.
type run struct {
	callID         string
	stdout, stderr capture
	exit           launch.Exit
	took           time.Duration
	ended          error // why Orla ended it; nil if it ended by itself
	redactor       *secret.Redactor
}

// redact removes the secrets from the output.
func (r *run) redact() {
	r.stdout.redact(r.redactor)
	r.stderr.redact(r.redactor)
}

// run runs the process of one call. An error means that no process was started.
func (c *Command) run(ctx context.Context, in input) (*run, error) {
	began := time.Now()
	spec, err := c.spec(ctx, in.flags)
	if err != nil {
		return nil, err
	}
	var redactor *secret.Redactor
	if spec.Secrets, redactor, err = c.secrets(); err != nil {
		return nil, err
	}
	if spec.Input = in.stdin; spec.Input == nil {
		spec.Input = []byte{} // an empty stdin
	}
	r := &run{
		callID:   spec.ID,
		stdout:   capture{limit: c.tool.Run.MaxOutput},
		stderr:   capture{limit: c.tool.Run.MaxOutput},
		redactor: redactor,
	}
	if account := turns.AccountOf(ctx); account != nil {
		r.stdout.need = func(n int64) error { return account.Need(ctx, n) }
		r.stderr.need = r.stdout.need
	}
	ran, err := launch.Run(ctx, c.opts.Launcher, spec, r.stdout.write, r.stderr.write)
	if err != nil {
		return nil, err
	}
	r.exit, r.took = ran.Exit, time.Since(began)
	if ran.Stopped {
		r.ended = fault.From(context.Cause(ctx))
	}
	for _, c := range []*capture{&r.stdout, &r.stderr} {
		c.torn = ran.Stopped || ran.Signal != 0
	}
	return r, nil
}

// spec returns the Spec of one call's process.
func (c *Command) spec(ctx context.Context, flags []string) (launch.Spec, error) {
	id := callid.From(ctx)
	var spec launch.Spec
	var err error
	if c.cli != nil {
		spec, err = c.cliSpec(flags)
	} else {
		spec, err = c.fileSpec(ctx, id, flags)
	}
	spec.ID = id
	if c.tool.Isolation.Isolated() {
		spec.Expose = append(c.tool.Exposed(), spec.Expose...)
		spec.Whole = true
		spec.Cell = c.tool.Name + "." + id
		spec.Limits = cgroup.Limits(c.tool.Isolation.Resources)
	}
	return spec, err
}

// ensurePackages waits until the packages are there. The client gets progress.
func (c *Command) ensurePackages(ctx context.Context, client peer.Client) error {
	if !c.opts.Packages.Missing() {
		return nil
	}
	ctx, end := rejudge.While(ctx)
	defer end()
	say := peer.Reporter(ctx, client, "installing dependencies: ")
	shared := c.opts.Shared != nil && c.opts.Shared()
	if shared {
		note := peer.Reporter(ctx, client, "installing dependencies")
		say = func(string) { note("") }
	}
	err := c.opts.Packages.Ensure(ctx, say)
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*deps.Error](err); ok && shared && ctx.Err() == nil {
		return fault.New(fault.StartFailed, "%s: %s", c.tool.Name, failed.Public())
	}
	if ctx.Err() == nil {
		return fault.Wrap(fault.StartFailed, err, "%s: %v", c.tool.Name, err)
	}
	f := fault.From(context.Cause(ctx))
	if f.Code == fault.Timeout {
		return fault.Wrap(f.Code, f, "%s: its dependencies are still being installed; call again later", c.tool.Name)
	}
	return f
}

// fileSpec returns the Spec for a tool that is a file.
func (c *Command) fileSpec(ctx context.Context, id string, flags []string) (launch.Spec, error) {
	p, err := environ.ProgramOf(c.tool, c.opts.Packages, c.opts.Elsewhere, append(traced(ctx, c.environ()), "ORLA_CALL_ID="+id), flags)
	if err != nil {
		return launch.Spec{}, err
	}
	return launch.Spec{Path: p.Argv[0], Argv: p.Argv, Env: p.Env, Dir: c.tool.WorkDir(), Expose: p.Expose}, nil
}

// secrets returns the secret variables.
func (c *Command) secrets() ([]string, *secret.Redactor, error) {
	variables, values, err := environ.Secrets(c.tool, c.opts.Secrets, fault.SecretResolutionFailed)
	if err != nil || values == nil {
		return nil, nil, err
	}
	return variables, c.last.Redactor(values...), nil
}

// traced replaces the trace context in an environment by that of ctx. The result may be appended to.
func traced(ctx context.Context, environ []string) []string {
	t := trace.From(ctx)
	if t.IsZero() {
		return slices.Clip(environ)
	}
	own := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, trace.ParentEnv+"=") || strings.HasPrefix(kv, trace.StateEnv+"=")
	})
	own = append(own, trace.ParentEnv+"="+t.Parent())
	if t.State() != "" {
		own = append(own, trace.StateEnv+"="+t.State())
	}
	return own
}
