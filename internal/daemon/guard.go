package daemon

import (
	"runtime/debug"

	"github.com/orla-project/orla/internal/launch"
)

// GuardCommand is the hidden command that a Local starts to outlive it.
const GuardCommand = "__guard"

// Guard runs as the process that outlives Orla, and returns its exit code.
func Guard(groups string) int {
	debug.FreeOSMemory() // it may live long, and needs next to nothing of what is here
	return launch.RunGuard(groups)
}
