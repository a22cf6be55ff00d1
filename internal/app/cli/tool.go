package cli

import (
	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/author"
	"github.com/orla-project/orla/internal/app/cli/packaged"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
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
	}
	usage.Group(cmd)
	cmd.AddCommand(packaged.New(flags, std)...)
	cmd.AddCommand(author.Tool(flags, std).Commands()...)
	return cmd
}
