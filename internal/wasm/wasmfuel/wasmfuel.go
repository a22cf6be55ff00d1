// Package wasmfuel rewrites a WebAssembly module so that it counts what it does and stops itself:
// wazero has no metering. It knows the binary format of WebAssembly 2.0 and imports no other package
// of this module; internal/wasm runs the result.
//
// Its one invariant: the module that it returns pays for every instruction that it executes, and the
// original code cannot read, write or name the counters. It refuses anything that it does not know,
// with the offset.
//
// The rewritten module
//
//   - imports the function [Yield] of the module [Host], () -> (). It calls Yield at least every
//     [Options.Slice] steps, after each call of the host, and after each 256 KiB that one
//     instruction moves. Native code cannot be interrupted; so this is where the host checks
//     whether the call is still wanted, and where the goroutine can be stopped. If a host
//     function panics with an error, the run ends with that error;
//   - exports the mutable i64 globals [Fuel] and [Slice], whose sum is the number of steps that
//     are left. Both are zero at first: the host sets [Fuel] to [Steps] before it calls
//     anything, and reads both after the call, see [Used];
//   - exports the mutable i64 globals [Depth] and [Room], and calls [Yield] at the beginning of
//     a function if [Depth] is above [Room]. [Depth] is an upper bound of the call stack in
//     bytes. The host sets [Room] to the allowed size, and to more in [Yield]. ref.func also
//     subtracts from [Room] what the runtime keeps for each reference until the end of the call;
//   - answers calls of WASI itself, with an error, if a path is longer than 4 KiB or if there
//     are more than 4096 subscriptions;
//   - has no start function. If the module had one, it is exported as [Start], and the host
//     calls it after setting the fuel;
//   - has a memory and tables with bounded maximum sizes, and no custom sections.
//
// # What is counted
//
// A unit of fuel is 100 steps. Each executed instruction is a step, except block, loop, else, end
// and nop, which are free. Additional steps are: for an instruction that moves memory, 1 for each 64
// bytes; for one that moves elements of a table, 1 for each of them; for memory.grow, 16 for each
// page; for ref.func, 16; for a call of an imported function, 100, and if it is one of WASI's, also
// 16 for each buffer or subscription, or 1 for each random byte.
//
// Instructions that are always executed together are paid for at the first of them. So a run that
// ends by a trap or by the host may have paid for instructions that it did not execute, but never
// for less than it executed.
package wasmfuel

import (
	"cmp"
	"fmt"
)

// Names that are added to a module. A module that imports from a module, or exports anything, whose
// name begins with one of them is refused.
const (
	reserved = "orla:"

	Host  = "orla:fuel"  // the module that Yield is imported from
	Yield = "yield"      // the imported function, () -> ()
	Fuel  = "orla:fuel"  // the exported global with the steps not yet handed out
	Slice = "orla:slice" // the exported global with the rest of the current slice, negative if it is overdrawn
	Depth = "orla:depth" // the exported global with an upper bound of the call stack, in bytes
	Room  = "orla:room"  // the exported global with the allowed size of the call stack, in bytes
	Start = "orla:start" // the exported function that was the start function, () -> ()
)

// Reference is how many bytes of Room ref.func subtracts, for the memory that the runtime keeps for
// it.
const Reference = 64

// PerUnit is the number of steps in a unit of fuel.
const PerUnit = 100

// MaxFuel keeps the counters from overflowing. It lasts for centuries.
const MaxFuel = 1 << 62 / PerUnit

// DefaultSlice is roughly 50 microseconds of arithmetic. Loads that miss all caches take a hundred
// times as long; then it is a few milliseconds.
const DefaultSlice = 1 << 16

// Options configures Instrument.
type Options struct {
	// Slice is the largest number of steps between two calls of Yield; it must be positive. If zero,
	// DefaultSlice.
	Slice int64

	// MaxMemory is the largest size of the module's memory in bytes: a memory with a larger minimum is
	// refused, and a larger maximum is lowered, so that memory.grow fails in the guest. If zero, 4 GiB.
	MaxMemory int64
}

// Error says what is wrong with a module, and where.
type Error struct {
	Offset int    // in bytes, from the beginning of the module
	Reason string // the message
}

// Steps converts fuel, from 0 to MaxFuel, to the value of the global Fuel.
func Steps(fuel int64) uint64 {
	return uint64(min(max(fuel, 0), MaxFuel) * PerUnit)
}

// Used returns how much of the given fuel a call has used, in whole units, and whether it ran out.
// fuel and slice are the values of the globals Fuel and Slice after the call. If the fuel ran out,
// the result of the call must be discarded: the call ended in a trap, or reached its end with fuel
// that it did not have.
func Used(given int64, fuel, slice uint64) (used int64, exhausted bool) {
	left := int64(fuel) + int64(slice)
	if left < 0 {
		return given, true
	}
	return (int64(Steps(given)) - left + PerUnit - 1) / PerUnit, false
}

// Error returns the reason and the offset.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (at byte %#x)", e.Reason, e.Offset)
}

// Instrument returns the metered module, and roughly how many bytes the runtime takes for an
// instance of it, without its linear memory and its call stack beyond one function. The error is an
// *Error. Instrument keeps no reference to module, and may be called from any goroutine.
func Instrument(module []byte, opts Options) (metered []byte, instance int64, err error) {
	if opts.Slice <= 0 {
		opts.Slice = DefaultSlice
	}
	opts.MaxMemory = cmp.Or(opts.MaxMemory, maxPages*pageSize)
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
