package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/approve"
	"github.com/orla-project/orla/internal/app/cli/auditlog"
	"github.com/orla-project/orla/internal/app/cli/author"
	"github.com/orla-project/orla/internal/app/cli/logins"
	"github.com/orla-project/orla/internal/app/cli/packaged"
	"github.com/orla-project/orla/internal/app/cli/pinned"
	"github.com/orla-project/orla/internal/app/cli/top"
	"github.com/orla-project/orla/internal/app/cli/upgrading"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/daemon"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

const rootExample = `  orla                                  serve ./tools on http://127.0.0.1:8080/mcp
  orla --tools-dir examples/tools       serve another folder
  orla --stdio                          serve one client on stdin and stdout
  orla dev tools/notes                  serve one tool, and show what it does
  orla tools                            list what would be served
  orla call hello --arg name=Ada        call one tool from the shell
  orla status                           show what a running Orla is doing
  orla console                          show the same in a browser
  orla logs notes -f                    follow what one of its tools does
  orla validate                         check every tool and say what is wrong`

// newRoot builds the command line.
func newRoot(std terminal.Streams) *cobra.Command {
	flags := &config.Flags{}
	serveHere := func(cmd *cobra.Command, _ []string) error {
		return daemon.Serve(cmd.Context(), flags.Loader(cmd.Flags()), std)
	}
	root := &cobra.Command{
		Use:           "orla",
		Short:         "Serve the executables in ./tools to MCP clients",
		Long:          "Orla finds executables and packages in ./tools and serves each as a tool of one\nMCP endpoint. Without a command it serves.",
		Example:       rootExample,
		Args:          noCommand,
		RunE:          serveHere,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	flags.Add(root.PersistentFlags())
	groupFlags(root)
	root.AddCommand(
		&cobra.Command{
			Use:        "serve",
			SuggestFor: []string{"run", "up"},
			Short:      "Serve until ctrl-C (the same as orla without a command)",
			Long: "Serve the tools folder until a signal: in the foreground, until ctrl-C. Below are also\n" +
				"the flags that say how tools are isolated, which every command takes.",
			Example: "  orla serve --port 9000\n  orla serve --stdio",
			Args:    cobra.NoArgs,
			RunE:    serveHere,
		},
		newDev(flags, std),
		newTools(flags, std),
		newCall(flags, std),
		newCan(flags, std),
		approve.New(flags, std),
		newStatus(flags, std),
		top.New(flags, readableLine, std),
		newLogs(flags, std),
		newEvents(flags, std),
		newConsole(flags, std),
		auditlog.New(flags, std),
		pinned.New(flags, std),
		newReload(flags, std),
		upgrading.New(flags, std),
		newValidate(flags, std),
		newConfig(flags, std),
		newSchema(std),
		author.New(flags, std),
		author.Tool(flags, std),
		author.Import(flags, std),
		newDoctor(flags, std),
		newVersion(std),
		newDocs(),
	)
	root.AddCommand(newOperate(flags, std)...)
	root.AddCommand(logins.New(flags, std)...)
	root.AddCommand(packaged.New(flags, std)...)
	root.AddCommand(newTool(flags, std))
	endWell(root)
	addVersionFlag(root)
	groupCommands(root)
	foldHelp(root, std.Out)
	return root
}

// addVersionFlag adds --version as cobra would for a command with a Version. Cobra's own prints another text
// or a template's, and a template brings text/template into the program (docs/decisions/0041).
func addVersionFlag(root *cobra.Command) {
	const name = "version"
	asked := root.Flags().BoolP(name, "v", false, "version for "+root.Name())
	_ = root.Flags().SetAnnotation(name, cobra.FlagSetByCobraAnnotation, []string{"true"}) // the flag exists
	args, run := root.Args, root.RunE
	root.Args = func(cmd *cobra.Command, words []string) error {
		if *asked {
			return nil
		}
		return args(cmd, words)
	}
	root.RunE = func(cmd *cobra.Command, words []string) error {
		if !*asked {
			return run(cmd, words)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", root.Name(), version.Version())
		return failed(err)
	}
}

// noCommand refuses a word that is not a command. It names the one that was probably meant: one with a similar name,
// or one that begins so, or one that others call so.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	f := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("there is no command %q", args[0]), Hint: exit.UsageHint}
	var known []string
	for _, one := range cmd.Commands() {
		if one.IsAvailableCommand() {
			known = append(known, one.Name())
		}
	}
	near := yamldoc.Nearest(args[0], known)
	if others := cmd.SuggestionsFor(args[0]); near == "" && len(others) > 0 {
		near = others[0]
	}
	if near != "" {
		f.Hint = "did you mean orla " + near + "?"
	}
	return f
}
