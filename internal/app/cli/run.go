// Package cli is the command line: a file for each command. Commands ask a running Orla by
// the control API, or look at the configuration and the tools themselves; those that serve
// hand over to internal/app/daemon.
package cli

import (
	"context"
	"os"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/observe/logging"
)

// Run runs the program, and returns its exit code.
func Run(args []string, std terminal.Streams) exit.Code {
	if code, hidden := wiring.RunHidden(args, std.Out); hidden {
		return exit.Code(code)
	}
	ctx := context.Background()
	var checked []byte
	if len(args) > 0 && args[0] == upgrade.CheckCommand {
		var err error
		if checked, err = upgrade.Check(os.NewFile(checkFile, "state")); err != nil {
			return exit.Report(&exit.Error{Code: exit.Failed, Err: err}, std.Err)
		}
		ctx, args = upgrade.Checking(ctx), args[1:]
	}
	keepDescriptors()
	logging.DropStandard() // what serves takes it
	root := newRoot(std)
	root.SetArgs(args)
	out := &written{Writer: std.Out}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = failed(out.err)
	}
	code := exit.Report(err, std.Err)
	if code == 0 && checked != nil {
		_, _ = std.Out.Write(append(checked, '\n')) // who does not get it does not go on
	}
	return code
}

// checkFile is the descriptor with the state for upgrade.CheckCommand.
const checkFile = 3
