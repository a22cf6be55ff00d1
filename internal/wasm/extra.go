package wasm

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

const (
	// stackAtFirst is the size of the call stack that each call has reserved at first. referencesStep is
	// how much is reserved at a time for references.
	stackAtFirst, referencesStep = 32 << 10, 256 << 10
	// mostStack is the largest call stack of wazero. A call that needs more ends.
	mostStack = 128 << 20
	// maxReferences bounds the references of a call: memory for all calls does not stop a call that has
	// already gone beyond it.
	maxReferences = 1 << 20
)

// extra counts the memory of a running call in addition to its linear memory: its call stack, and
// the references that it makes. The guest counts both itself, and yields before the stack exceeds
// what is reserved.
type extra struct {
	need func(more int64) error
	// Globals of the guest; see wasmfuel. Between two calls of grow, room is stack minus the bytes of
	// new references.
	depth, room api.MutableGlobal

	stack      int64 // reserved bytes of the stack
	references int64 // reserved bytes for references
	made       int64 // bytes of references that were made
}

// begin sets the initial room of the guest.
func (e *extra) begin(module api.Module) {
	e.depth = module.ExportedGlobal(wasmfuel.Depth).(api.MutableGlobal)
	e.room = module.ExportedGlobal(wasmfuel.Room).(api.MutableGlobal)
	e.stack = stackAtFirst
	e.room.Set(uint64(e.stack))
}

// taken returns how many bytes of memory a stack takes: wazero doubles it when it grows.
func taken(stack int64) int64 { return min(2*stack, mostStack) }

// grow reserves memory for the references made since the last call, and for a larger stack if the
// guest has reached the end of it.
func (e *extra) grow() error {
	e.made += e.stack - int64(e.room.Get())
	depth := int64(e.depth.Get())
	if depth > e.stack || e.made > e.references {
		if err := e.ask(depth); err != nil {
			return err
		}
	}
	e.room.Set(uint64(e.stack))
	return nil
}

func (e *extra) ask(depth int64) error {
	if e.made > maxReferences*wasmfuel.Reference {
		return fault.New(fault.ExecutionFailed, "the module made more than %d references to functions in one call, with ref.func: it must keep them, not make them again", maxReferences)
	}
	var more int64
	if e.made > e.references {
		more = e.made + referencesStep - e.references
		e.references += more
	}
	before := taken(e.stack)
	for depth > e.stack {
		e.stack *= 2
	}
	return e.need(more + taken(e.stack) - before)
}
