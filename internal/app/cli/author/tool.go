package author

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// One wants one word on the command line, and says what it is.
func One(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, words []string) error {
		switch len(words) {
		case 0:
			return fmt.Errorf("wants %s", what)
		case 1:
			return nil
		}
		return fmt.Errorf("wants %s alone, and not %q too", what, words[1])
	}
}

// Tool is what helps those who write tools in WebAssembly.
func Tool(flags *config.Flags, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wasm",
		Short: "Write tools in WebAssembly: scaffold and test",
		Long: "Write tools in WebAssembly. orla wasm scaffold makes a project to begin with, and\n" +
			"orla wasm test runs a module against what is expected of it, under its real limits.",
		Example: "  orla wasm scaffold greet --lang go\n  orla wasm test greet.wasm --fixtures fixtures",
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 {
				return nil
			}
			f := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("there is no command \"wasm %s\"", words[0]), Hint: cmd.CommandPath() + " --help lists what there is"}
			if near := cmd.SuggestionsFor(words[0]); len(near) > 0 {
				f.Hint = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
			}
			return f
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newScaffold(std), newToolTest(flags, std))
	return cmd
}
