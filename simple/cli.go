package simple

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxLast and maxLastLines bound what the reason of a failure has of stderr.
	maxLast      = 2 << 10
	maxLastLines = 20
)

// cli is what is particular to a tool of type cli (SPEC-TOOLS 3.6).
type cli struct {
	manifest.CLI
	arguments []argument
}

func newCLI(tool manifest.Tool) (*cli, error) {
	if tool.Kind != manifest.Cli {
		return nil, nil //nolint:nilnil // the tool is of another kind
	}
	arguments, err := argumentsOf(tool.Resource.CLI.Args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tool.Source, err)
	}
	return &cli{CLI: *tool.Resource.CLI, arguments: arguments}, nil
}

// input makes the command line and stdin of a call.
func (c *cli) input(ctx context.Context, args json.RawMessage) (input, error) {
	used, err := c.used(args)
	if err != nil {
		return input{}, err
	}
	if used.cost > turns.Little {
		account, release := turns.AccountOf(ctx).Beside()
		defer release()
		if err := account.Need(ctx, used.cost); err != nil {
			return input{}, fault.From(err)
		}
	}
	values, err := used.decoded()
	if err != nil {
		return input{}, err
	}
	argv, err := c.render(ctx, values)
	if err != nil {
		return input{}, err
	}
	in := input{flags: argv}
	if c.Stdin {
		if in.stdin = args; none(args) {
			in.stdin = []byte("{}")
		}
	}
	return in, nil
}

// cliSpec is how the command of a call is started: with what its file gives it
// and nothing of Orla's own, neither the call's id nor its trace.
func (c *Command) cliSpec(argv []string) (launch.Spec, error) {
	program, err := c.program()
	if err != nil {
		return launch.Spec{}, err
	}
	return launch.Spec{
		Path: program,
		Argv: slices.Concat([]string{c.cli.Command}, argv),
		Env:  slices.Clip(c.environ),
		Dir:  c.tool.WorkDir(),
	}, nil
}

// program finds the command: on this machine by PATH as it is now, elsewhere it is
// looked for there.
func (c *Command) program() (string, error) {
	command := c.cli.Command
	switch {
	case c.opts.Elsewhere:
		return command, nil
	case c.tool.Isolation.Isolated():
		if path := environ.Find(command, c.environ); path != "" {
			return path, nil
		}
		return "", fault.New(fault.UnsupportedTool, "%s: there is no command %q in the sandbox, or it is not executable; install it, or correct cli.command", c.tool.Name, command)
	}
	path, err := exec.LookPath(command)
	if err != nil || !filepath.IsAbs(path) { // a PATH with relative folders names no program for certain
		return "", fault.New(fault.UnsupportedTool, "%s: the command %q is not on this machine, or not executable; install it, or correct cli.command", c.tool.Name, command)
	}
	return path, nil
}

// cliResult is what of the command's output is its result. Beside an error it is the streams
// as they are.
func (c *Command) cliResult(ctx context.Context, r *run) (*mcp.CallToolResult, error) {
	res := &mcp.CallToolResult{Meta: r.meta()}
	switch c.cli.Output {
	case manifest.CLIBoth:
		text, object, err := r.both(ctx)
		if err != nil {
			return r.streams(), err
		}
		res.StructuredContent = object
		res.Content = append(append(res.Content, text), r.cutNotes("stdout", "stderr")...)
	case manifest.CLIStderr:
		block := r.block(&r.stderr, "stderr")
		if text, ok := block.(*mcp.TextContent); ok { // it is the result, and no aside
			text.Text, text.Meta = strings.TrimPrefix(text.Text, "stderr:\n"), nil
		}
		res.Content = append(append(res.Content, block), r.cutNotes("stderr")...)
	default:
		res.Content = append(append(res.Content, r.block(&r.stdout, "stdout")), r.cutNotes("stdout")...)
	}
	return res, nil
}

// exited is the fault of a command that exited with a code, and the last that it
// said on stderr.
func (c *Command) exited(r *run) *fault.Error {
	reason := fmt.Sprintf("%s exited with code %d", c.tool.Name, r.exit.Code)
	f := fault.New(fault.ExecutionFailed, "%s", reason)
	if c.cli == nil {
		return f
	}
	if last := r.stderr.last(); last != "" {
		f.Reason += "; it said on stderr:\n" + last
		f.Logged = reason // what it said may repeat arguments (SPEC I2)
	}
	if slices.Contains(c.cli.RetryExitCodes, r.exit.Code) {
		again := true
		f.Retry = &again
	}
	return f
}

// last returns the last lines of a stream.
func (c *capture) last() string {
	text, _ := c.text()
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	cut := false
	if len(text) > maxLast {
		text, cut = strings.ToValidUTF8(text[len(text)-maxLast:], ""), true
	}
	if lines := strings.Split(text, "\n"); len(lines) > maxLastLines {
		text, cut = strings.Join(lines[len(lines)-maxLastLines:], "\n"), true
	}
	if cut {
		text = "…" + text
	}
	return text
}
