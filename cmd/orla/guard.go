package main

import (
	"runtime/debug"

	"github.com/orla-project/orla/internal/launch"
)

// guardCommand is the hidden command that a Local starts to outlive it.
const guardCommand = "__guard"

// guard runs as the process that outlives Orla, and returns its exit code.
func guard(groups string) int {
	debug.FreeOSMemory() // it may live long, and needs next to nothing of what is here
	return launch.RunGuard(groups)
}
