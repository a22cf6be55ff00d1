package main

import (
	"context"

	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/terminal"
)

// run is the program without its process. It returns how it ended.
func run(args []string, std terminal.Streams) exitCode {
	if len(args) == 2 && args[0] == guardCommand {
		return exitCode(guard(args[1]))
	}
	if len(args) > 0 && args[0] == probeCommand {
		return exitCode(container.Probe(args[1:], std.Out))
	}
	keepDescriptors()
	root := newRoot(std)
	root.SetArgs(args)
	return report(root.ExecuteContext(context.Background()), std.Err)
}
