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
	// maxLast and maxLastLines bound how much of stderr is in the message of a failure.
	maxLast      = 2 << 10
	maxRead      = 64 << 10 // bytes at the end of stderr that are looked at
	maxLastLines = 20
)

// cli has what only tools of type cli need (SPEC-TOOLS 3.6).
type cli struct {
	manifest.CLI
	arguments []argument
}

// input makes the command line and the stdin of a call.
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

// cliSpec returns the Spec of a call's command. Its environment is that of the file, without Orla's
// variables such as the call's id and trace.
func (c *Command) cliSpec(argv []string) (launch.Spec, error) {
	program, err := c.program()
	if err != nil {
		return launch.Spec{}, err
	}
	return launch.Spec{
		Path: program,
		Argv: slices.Concat([]string{c.cli.Command}, argv),
		Env:  slices.Clip(c.environ()),
		Dir:  c.tool.WorkDir(),
	}, nil
}

// program returns the path of the command. On this machine it is looked up in the current PATH;
// elsewhere the Launcher looks it up.
func (c *Command) program() (string, error) {
	command := c.cli.Command
	switch {
	case c.opts.Elsewhere:
		return command, nil
	case c.tool.Isolation.Isolated():
		if path := environ.Find(command, c.environ()); path != "" {
			return path, nil
		}
		return "", fault.New(fault.UnsupportedTool, "%s: there is no command %q in the sandbox, or it is not executable; install it, or correct cli.command", c.tool.Name, command)
	}
	path, err := exec.LookPath(command)
	if err != nil || !filepath.IsAbs(path) { // a PATH with relative folders is not reliable
		return "", fault.New(fault.UnsupportedTool, "%s: the command %q is not on this machine, or not executable; install it, or correct cli.command", c.tool.Name, command)
	}
	return path, nil
}

// cliResult returns the result that the command's output stands for. With an error, it is the
// streams.
func (c *Command) cliResult(ctx context.Context, r *run) (*mcp.CallToolResult, error) {
	res := &mcp.CallToolResult{Meta: r.meta()}
	if c.cli.Output == manifest.CLIBoth {
		text, object, err := c.both(ctx, r)
		if err != nil {
			return c.streams(ctx, r), err
		}
		res.StructuredContent = object
		res.Content = append(append(res.Content, text), r.cutNotes("stdout", "stderr")...)
		return res, nil
	}
	name, stream := "stdout", &r.stdout
	if c.cli.Output == manifest.CLIStderr {
		name, stream = "stderr", &r.stderr
	}
	var block mcp.Content
	c.work(ctx, r, func() { block = r.block(stream, name) })
	if text, ok := block.(*mcp.TextContent); ok && name == "stderr" { // it is the result itself, not an additional stream
		text.Text, text.Meta = strings.TrimPrefix(text.Text, "stderr:\n"), nil
	}
	res.Content = append(append(res.Content, block), r.cutNotes(name)...)
	return res, nil
}

// exited is the error for a command with an exit code, with the last lines of its stderr.
func (c *Command) exited(r *run) *fault.Error {
	reason := fmt.Sprintf("%s exited with code %d", c.tool.Name, r.exit.Code)
	f := fault.New(fault.ExecutionFailed, "%s", reason)
	if c.cli == nil {
		return f
	}
	if last := r.stderr.last(); last != "" {
		f.Reason += "; it said on stderr:\n" + last
		f.Logged = reason // stderr may repeat arguments (SPEC I2)
	}
	if slices.Contains(c.cli.RetryExitCodes, r.exit.Code) {
		f.Retry = new(true)
	}
	return f
}

// last returns the last lines of a stream. It reads no more than maxRead bytes of it.
func (c *capture) last() string {
	kept, cut := c.whole(), false
	if len(kept) > maxRead {
		kept, cut = kept[len(kept)-maxRead:], true
	}
	text := strings.TrimSpace(strings.ToValidUTF8(string(kept), "\uFFFD"))
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
