package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/pinned"
	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/oneshot"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// callFlags are the flags of `orla call`.
type callFlags struct {
	args   []string // k=v
	json   string
	result bool
}

// newCall calls one tool from the shell.
func newCall(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call NAME",
		Short: "Call one tool and print its answer",
		Long: "Call one tool the way an MCP client would and print its answer: text on stdout,\n" +
			"what the tool wrote to stderr on stderr. The exit code is 1 when the tool failed.\n\n" +
			"A value of --arg is text, unless the tool's schema wants a number, a boolean, an\n" +
			"array or an object; then it is JSON.\n\n" +
			"If an Orla is running that serves this folder, or orla dev this tool, it is the one\n" +
			"that makes the call, so that a capsule is not started twice. Without one, or with\n" +
			"--socket none, the tool is started for this call and ended after it.",
		Example: "  orla call hello --arg name=Ada --arg times=3\n" +
			"  orla call hello --json '{\"name\": \"Ada\"}'\n" +
			"  echo '{\"name\": \"Ada\"}' | orla call hello --json -\n" +
			"  orla call hello --result | jq .",
		Args: oneTool,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, l, err := flags.LoadTools(cmd.Flags())
			if err != nil {
				return err
			}
			client, err := running.Serving(cmd.Context(), cfg, l)
			if client == nil && err == nil {
				client = running.Developing(cmd.Context(), cfg, l, args[0])
			}
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if client != nil {
				return callRunning(ctx, client, cfg, l.Home, args[0], &f, std)
			}
			return running.OrElsewhere(ctx, callOnce(ctx, cfg, l.Home, args[0], &f, std), cfg, l)
		},
		ValidArgsFunction: completeTools(flags),
	}
	cmd.Flags().StringArrayVarP(&f.args, "arg", "a", nil, "one argument `NAME=VALUE`; may be repeated")
	cmd.Flags().StringVar(&f.json, "json", "", "all arguments as a JSON `OBJECT`, or - to read it from stdin")
	cmd.Flags().BoolVar(&f.result, "result", false, "print the whole CallToolResult as JSON")
	cmd.MarkFlagsMutuallyExclusive("arg", "json")
	return cmd
}

// oneTool requires the name of a tool and nothing else: the tool's arguments are flags.
func oneTool(_ *cobra.Command, words []string) error {
	switch {
	case len(words) == 0:
		return errors.New("wants the name of a tool; orla tools lists them")
	case len(words) > 1:
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%q is not an argument of orla call", words[1]), Hint: argumentHint(words[1])}
	}
	return nil
}

// argumentHint shows how to write a word that was meant to be an argument of the tool.
func argumentHint(word string) string {
	if strings.HasPrefix(word, "{") {
		return "write arguments as JSON behind --json"
	}
	name, value, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	return fmt.Sprintf("write an argument of the tool as --arg %s=%s", cmp.Or(name, "NAME"), cmp.Or(value, "VALUE"))
}

// callOnce runs one call without a server.
func callOnce(ctx context.Context, cfg *config.Loaded, home, name string, f *callFlags, std terminal.Streams) error {
	err := oneshot.Call{
		Tool:      name,
		Arguments: func(inputSchema any) (json.RawMessage, error) { return f.arguments(inputSchema, std.In) },
		Answered:  func(result json.RawMessage) error { return f.finish(name, result, std) },
		Log:       slog.New(installs{slog.DiscardHandler, std.Err, terminal.IsTerminal(std.Err)}),
	}.Make(ctx, cfg, home)
	if missing, ok := errors.AsType[*oneshot.NoToolError](err); ok {
		return orForgotten(running.NoTool(name, missing.Found, missing.Listed, nil), cfg, home, name)
	}
	return err
}

// answerTime is how long a running Orla may take to say that a call's time is over.
const answerTime = 2 * time.Second

// callRunning lets a running Orla make the call, with its own timeouts. A timeout of the command bounds
// the wait for the answer.
func callRunning(ctx context.Context, client *control.Client, cfg *config.Loaded, home, name string, f *callFlags, std terminal.Streams) error {
	tools, err := client.Tools(ctx)
	if err != nil {
		return running.Explain(err)
	}
	i := slices.IndexFunc(tools, func(t control.ListedTool) bool { return t.Name == name })
	if i < 0 {
		if err := pinned.Held(ctx, client, name); err != nil {
			return err
		}
		served, err := running.NoToolOf(ctx, client, name, tools)
		err = orForgotten(err, cfg, home, name)
		if served || slices.ContainsFunc(tools, func(t control.ListedTool) bool { return t.Of == name }) {
			return err
		}
		return orUnread(err, cfg, home, name)
	}
	args, err := f.arguments(tools[i].InputSchema, std.In)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	asked := control.CallRequest{Arguments: args}
	if cfg.OriginOf("timeout").Rank == config.FromFlag {
		asked.Timeout = time.Duration(cfg.Timeout).Milliseconds() // Orla says what the call waited for
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(cfg.Timeout)+answerTime, fmt.Errorf("%s gave no answer within %s, nor did Orla", name, cfg.Timeout))
		defer cancel()
	}
	raw, err := client.Call(ctx, name, asked)
	switch {
	case err != nil && ctx.Err() != nil: // Orla cancels the call when this client leaves
		return context.Cause(ctx)
	case err != nil:
		return running.Explain(err)
	}
	return f.finish(name, raw, std)
}

// finish prints the answer of a tool. It returns an error if the answer is a failure.
func (f *callFlags) finish(tool string, raw json.RawMessage, std terminal.Streams) error {
	answer := new(mcp.CallToolResult)
	err := json.Unmarshal(raw, answer)
	switch {
	case err != nil:
		return fmt.Errorf("the answer of %s: %w", tool, err)
	case f.result:
		err = terminal.WriteJSON(std.Out, raw) // with every digit of its numbers
	default:
		err = printAnswer(answer, std)
	}
	if err == nil && answer.IsError {
		return errors.New("") // the answer has said why
	}
	return err
}

// orForgotten returns err. If err does not explain why the tool does not exist, it adds which script
// would be the tool if it could be run.
func orForgotten(err error, cfg *config.Loaded, home, name string) error {
	if f, ok := errors.AsType[*exit.Error](err); !ok || f.Code != exit.Failed {
		return err
	}
	if lacking := discovery.Forgotten(cfg, home, name); lacking != "" {
		return &exit.Error{Code: exit.Invalid, Err: fmt.Errorf("%s is not served: %s", name, lacking)}
	}
	return err
}

// orUnread returns err, of a running Orla that has no such tool. If the folders have the tool, it adds that Orla has not read it yet.
func orUnread(err error, cfg *config.Loaded, home, name string) error {
	f, ok := errors.AsType[*exit.Error](err)
	if !ok || f.Code != exit.Failed {
		return err
	}
	if found := discovery.Find(cfg, home); !slices.ContainsFunc(found.Tools, func(t manifest.Tool) bool { return t.Name == name }) {
		return err
	}
	return &exit.Error{Code: f.Code, Err: f.Err, Hint: "its file is there, and the running Orla has not read it yet; try again"}
}

// arguments puts the call's arguments together as a JSON object.
func (f *callFlags) arguments(inputSchema any, stdin io.Reader) (json.RawMessage, error) {
	if f.json != "" {
		raw := []byte(f.json)
		if f.json == "-" {
			var err error
			if raw, err = io.ReadAll(stdin); err != nil {
				return nil, fmt.Errorf("--json -: %w", err)
			}
		}
		if len(bytes.TrimSpace(raw)) > 0 && !json.Valid(raw) {
			return nil, fmt.Errorf("--json %s: is not JSON; write it as '{\"NAME\": VALUE}'", f.json)
		}
		return raw, nil
	}
	var schema struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	raw, err := json.Marshal(inputSchema)
	if err == nil {
		err = json.Unmarshal(raw, &schema)
	}
	if err != nil {
		return nil, err
	}
	args := map[string]json.RawMessage{}
	for _, arg := range f.args {
		name, text, ok := strings.Cut(arg, "=")
		switch _, again := args[name]; {
		case !ok || name == "":
			return nil, fmt.Errorf("--arg %q: write it as NAME=VALUE", arg)
		case again:
			return nil, fmt.Errorf("--arg %s is given twice; write a list as %[1]s='[1, 2]'", name)
		case !utf8.ValidString(arg):
			return nil, fmt.Errorf("--arg %q: is not UTF-8, which JSON is made of", arg)
		}
		raw := json.RawMessage(text)
		if isText(schema.Properties[name].Type) || !json.Valid(raw) {
			raw, _ = json.Marshal(text) // a string can always be encoded
		}
		args[name] = raw
	}
	return json.Marshal(args)
}

// isText reports whether a schema's type allows a string, or is missing.
func isText(kind any) bool {
	switch k := kind.(type) {
	case nil:
		return true
	case string:
		return k == "string"
	case []any:
		return slices.Contains(k, any("string"))
	}
	return false
}

// printAnswer writes an answer for people: text as it is, all other content as JSON. A
// terminal obeys some characters, so text of the tool is escaped there, and always on
// stderr.
func printAnswer(answer *mcp.CallToolResult, std terminal.Streams) error {
	for i, block := range answer.Content {
		text, ok := block.(*mcp.TextContent)
		if !ok {
			raw, err := block.MarshalJSON()
			if err != nil {
				return err
			}
			if terminal.IsTerminal(std.Out) {
				raw = terminal.EscapedJSON(raw)
			}
			if _, err := fmt.Fprintf(std.Out, "%s\n", raw); err != nil {
				return err
			}
			continue
		}
		to, body := std.Out, text.Text
		switch stream, _ := text.Meta[simple.MetaStream].(string); {
		case stream != "":
			to, body = std.Err, strings.TrimPrefix(body, stream+":\n")
		case answer.IsError && i == len(answer.Content)-1:
			to, body = std.Err, "orla: "+body
		}
		if to == std.Err || terminal.IsTerminal(to) {
			body = terminal.PrintableLines(body)
			if body != "" && !strings.HasSuffix(body, "\n") {
				body += "\n"
			}
		}
		if _, err := io.WriteString(to, body); err != nil {
			return err
		}
	}
	return nil
}
