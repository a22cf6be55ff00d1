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
//   - imports the function [Yield] of the module [Host], () -> (), and calls it each
//     [Options.Slice] steps, after each call of the host, and after each 256 KiB that one
//     instruction moves: there the host looks whether the call is still wanted, and the
//     goroutine can be stopped, which native code cannot be. A function of the host that
//     panics with an error ends the run with that error;
//   - exports the mutable i64 globals [Fuel] and [Slice], whose sum is the steps that are
//     left. Both are zero at first: the host sets [Fuel] to [Steps] before it calls
//     anything, and reads both when the call is over, see [Used];
//   - exports the mutable i64 globals [Depth] and [Room], and calls [Yield] where a function
//     begins with [Depth] above [Room]. [Depth] is how many bytes the call stack has at
//     most. The host sets [Room] to what it may have, and to more in [Yield]. From [Room] is
//     also taken what the runtime keeps until the call is over of each reference that
//     ref.func makes;
//   - answers a call of WASI itself, with an error, that has a path of more than 4 KiB or more than
//     4096 subscriptions;
//   - has no start function. What was one is exported as [Start], if there was one, for
//     the host to call once it has set the fuel;
//   - has a memory and tables that grow no further than they may, and no custom sections.
//
// # What is counted
//
// A unit of fuel is 100 steps. Each instruction that is executed is a step, but block,
// loop, else, end and nop, which are none. An instruction that moves memory is one more for
// each 64 bytes, one that moves elements of a table one more for each of them, memory.grow
// is 16 more for each page, ref.func is 16 more, and a call of an imported function is 100 more. One of WASI is
// also 16 more for each buffer or subscription it is given, or one for each random byte.
//
// Instructions that are always executed together are paid for at the first of them: a run
// that a trap or the host ends has paid for the rest of those too, and never for less
// than it did.
package wasmfuel

import "fmt"

// Names of what is added to a module. One that imports from a module, or exports
// anything, whose name begins like them is refused.
const (
	reserved = "orla:"

	Host  = "orla:fuel"  // the module that Yield is imported from
	Yield = "yield"      // the imported function, () -> ()
	Fuel  = "orla:fuel"  // the exported global with the steps not yet handed out
	Slice = "orla:slice" // the exported global with what is left of the current slice, below zero when it is overdrawn
	Depth = "orla:depth" // the exported global with the bytes of the call stack, at most
	Room  = "orla:room"  // the exported global with the bytes that it may have
	Start = "orla:start" // the exported function that was the start function, () -> ()
)

// Reference is how many bytes of Room ref.func takes: what the runtime keeps for it.
const Reference = 64

// PerUnit is how many steps a unit of fuel is.
const PerUnit = 100

// MaxFuel keeps the counters from overflowing. It is centuries.
const MaxFuel = 1 << 62 / PerUnit

// DefaultSlice is some 50 microseconds of arithmetic. Loads of memory that no cache has
// take a hundred times as long: then it is a few milliseconds.
const DefaultSlice = 1 << 16

// Options of Instrument.
type Options struct {
	// Slice is how many steps a module may go between two calls of Yield, above 0.
	// If zero, DefaultSlice.
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

// Steps returns what the global Fuel is set to for so much fuel, from 0 to MaxFuel.
func Steps(fuel int64) uint64 {
	return uint64(min(max(fuel, 0), MaxFuel) * PerUnit)
}

// Used returns what a call used of the fuel it was given, in whole units, from the values
// that the globals Fuel and Slice have after it, and whether it ran out. If it did, what
// the call returned is to be thrown away: it ended in a trap, or came to its end on what it
// did not have.
func Used(given int64, fuel, slice uint64) (used int64, exhausted bool) {
	left := int64(fuel) + int64(slice)
	if left < 0 {
		return given, true
	}
	return (int64(Steps(given)) - left + PerUnit - 1) / PerUnit, false
}

// Error says the reason and the offset.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (at byte %#x)", e.Reason, e.Offset)
}

// Instrument returns the module with meters in it, and how many bytes the runtime takes for
// an instance of it, more or less, besides its linear memory and its call stack, of which one
// function is counted here. The error is an *Error. It
// keeps nothing of module, and may be called from any number of goroutines.
func Instrument(module []byte, opts Options) (metered []byte, instance int64, err error) {
	if opts.Slice <= 0 {
		opts.Slice = DefaultSlice
	}
	if opts.MaxMemory == 0 {
		opts.MaxMemory = maxPages * pageSize
	}
	m, wrong := parse(module, opts.MaxMemory)
	if wrong != nil {
		return nil, 0, wrong
	}
	w := &writer{m: m, slice: opts.Slice, local: noLocal, depth: noLocal}
	if wrong := w.module(); wrong != nil {
		return nil, 0, wrong
	}
	return w.out, m.instance(), nil
}
