package main

import (
	"context"

	"github.com/orla-project/orla/internal/launch/container"
)

// run is the program without its process. It returns how it ended.
func run(args []string, std stdio) exitCode {
	if len(args) == 2 && args[0] == guardCommand {
		return exitCode(guard(args[1]))
	}
	if len(args) > 0 && args[0] == probeCommand {
		return exitCode(container.Probe(args[1:], std.out))
	}
	keepDescriptors()
	root := newRoot(std)
	root.SetArgs(args)
	return report(root.ExecuteContext(context.Background()), std.err)
}
