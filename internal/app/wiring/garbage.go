package wiring

import (
	"os"
	"runtime/debug"
)

// gcPercent is the value of GOGC. Orla uses only a few MiB, so that with the default of 100, garbage
// collections take a fifth of the time of small calls.
const gcPercent = 400

// LetGarbageGather sets gcPercent, unless the user has set GOGC.
func LetGarbageGather() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
