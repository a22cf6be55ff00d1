// Package cli is the command line: a file for each command. Commands ask a running Orla by
// the control API, or look at the configuration and the tools themselves; those that serve
// hand over to internal/app/daemon.
package cli

import (
	"context"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
)

// Run runs the program, and returns its exit code.
func Run(args []string, std terminal.Streams) exit.Code {
	if code, hidden := wiring.RunHidden(args, std.Out); hidden {
		return exit.Code(code)
	}
	keepDescriptors()
	root := newRoot(std)
	root.SetArgs(args)
	return exit.Report(root.ExecuteContext(context.Background()), std.Err)
}
