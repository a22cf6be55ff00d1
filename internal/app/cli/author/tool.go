package author

import (
	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
)

// Tool is what helps those who write tools in WebAssembly.
func Tool(flags *config.Flags, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wasm",
		Short: "Write tools in WebAssembly: scaffold and test",
		Long: "Write tools in WebAssembly. orla wasm scaffold makes a project to begin with, and\n" +
			"orla wasm test runs a module against what is expected of it, under its real limits.",
		Example: "  orla wasm scaffold greet --lang go\n  orla wasm test greet.wasm --fixtures fixtures",
	}
	usage.Group(cmd)
	cmd.AddCommand(newScaffold(std), newToolTest(flags, std))
	return cmd
}
