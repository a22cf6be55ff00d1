// Package wasmfuel rewrites a WebAssembly module so that it counts what it does
// and stops itself, since the runtime meters nothing. It knows the binary format
// of WebAssembly 2.0 and imports nothing else: how a module is run is internal/wasm's.
//
// Its one invariant: whatever it returns pays for every instruction it executes,
// and nothing that came with the module can read, write or name the counter. What
// it does not know, it refuses with the offset.
//
// The rewritten module
//
//   - imports the function [Yield] of the module [Host], () -> (), which it calls
//     each [Options.Slice] units: there the host looks whether the call is
//     still wanted, and the goroutine can be stopped, which native code cannot be
//     (a function of the host that panics with an error ends the run with it);
//   - exports the mutable i64 globals [Fuel] and [Slice], whose sum is the fuel that
//     is left. Both are zero at first: the host sets [Fuel] before it calls anything
//     and reads both when the call is over, see [Used];
//   - has no start function. What was one is exported as [Start], if there was one, for
//     the host to call once it has set the fuel.
package wasmfuel

import "fmt"

// Names of what is added to a module. A module that already imports from Host, or
// exports anything that begins like them, is refused.
const (
	reserved = "orla:"

	Host  = "orla:fuel"  // the module that Yield is imported from
	Yield = "yield"      // the imported function, () -> ()
	Fuel  = "orla:fuel"  // the exported global with the fuel not yet handed out
	Slice = "orla:slice" // the exported global with what is left of the current slice; below zero once out of fuel
	Start = "orla:start" // the exported function that was the start function, () -> ()
)

// MaxFuel is the most that Fuel may be set to.
const MaxFuel = 1 << 62

// DefaultSlice is about a millisecond of work.
const DefaultSlice = 1 << 20

// Options of Instrument.
type Options struct {
	// Slice is how many units a module may use between two calls of Yield, from 1
	// to MaxFuel. If zero, DefaultSlice.
	Slice int64

	// MaxMemory is how many bytes the module's memory may grow to: a memory whose
	// declared minimum is above it is refused, and a maximum above it is lowered to
	// it, so that memory.grow fails in the guest. If zero, 4 GiB.
	MaxMemory int64
}

// Error says what is wrong with a module, and where.
type Error struct {
	Offset int    // in bytes, from the beginning of the module
	Reason string // what is wrong there
}

// Used returns what a call used of the fuel it was given, from the values that the
// globals Fuel and Slice have after it, and whether it ran out: then what the call
// returned is to be thrown away, for it may have come to its end on what it did not have.
func Used(given int64, fuel, slice uint64) (used int64, exhausted bool) {
	left := int64(fuel) + int64(slice)
	if left < 0 {
		return given, true
	}
	return given - left, false
}

// Error says the reason and the offset.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (at byte %#x)", e.Reason, e.Offset)
}

// Instrument returns the module with meters in it. The error is an *Error. It keeps
// nothing of module, and may be called from any number of goroutines.
func Instrument(module []byte, opts Options) ([]byte, error) {
	return nil, &Error{Reason: "not written yet"}
}
