package wiring

import (
	"io"
	"runtime/debug"

	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/launch/guard"
)

// The hidden commands with which Orla starts itself.
const (
	guardCommand = "__guard" // a Local's process that outlives it
	probeCommand = "__probe" // says what a container is, inside it
)

// Guard returns the command of the process that outlives a Local.
func Guard() ([]string, error) {
	self, err := guard.Program()
	return []string{self, guardCommand}, err
}

// RunHidden runs a hidden command, if args are one, and returns its exit code.
func RunHidden(args []string, out io.Writer) (code int, hidden bool) {
	switch {
	case len(args) == 2 && args[0] == guardCommand:
		debug.FreeOSMemory() // the guard may run for long, and needs very little memory
		return guard.Run(args[1]), true
	case len(args) > 0 && args[0] == probeCommand:
		return container.Probe(args[1:], out), true
	}
	return 0, false
}
