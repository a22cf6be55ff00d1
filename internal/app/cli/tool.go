package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/author"
	"github.com/orla-project/orla/internal/app/cli/packaged"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newTool has the commands about packages once more, below the word tool (RFC 4), and those about tools in
// WebAssembly, which were there before.
func newTool(flags *config.Flags, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool",
		Short: "The commands about packages, as orla tool install and so on",
		Long: "The commands about packages, as orla tool install and so on: each is the same as\n" +
			"without the word tool.",
		Hidden: true,
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 {
				return nil
			}
			f := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("there is no command \"tool %s\"", words[0]), Hint: cmd.CommandPath() + " --help lists what there is"}
			if near := cmd.SuggestionsFor(words[0]); len(near) > 0 {
				f.Hint = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
			}
			return f
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(packaged.New(flags, std)...)
	cmd.AddCommand(author.Tool(flags, std).Commands()...)
	return cmd
}
