package wasm

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

const (
	// stackAtFirst is what the call stack of each call may have, and referencesStep how
	// much is asked for at a time for references.
	stackAtFirst, referencesStep = 32 << 10, 256 << 10
	// mostStack is what the runtime makes of a call stack at most, before it ends the call.
	mostStack = 128 << 20
	// maxReferences bounds what a call asks for by ref.func: a call that is beyond the
	// memory of all calls would go on.
	maxReferences = 1 << 20
)

// extra is what a call takes of Orla's memory, besides its linear memory, while it runs: its
// call stack, and the references that it makes. The guest counts both itself, and yields
// before the stack has more than it may have.
type extra struct {
	need func(more int64) error
	// Of the guest; see wasmfuel. Between two calls of grow, room is what stack is, less
	// what references took.
	depth, room api.MutableGlobal

	stack      int64 // bytes that the stack may have
	references int64 // bytes of references that it has asked for
	made       int64 // bytes of references
}

// begin gives the guest what it has from the beginning.
func (e *extra) begin(module api.Module) {
	e.depth = module.ExportedGlobal(wasmfuel.Depth).(api.MutableGlobal)
	e.room = module.ExportedGlobal(wasmfuel.Room).(api.MutableGlobal)
	e.stack = stackAtFirst
	e.room.Set(uint64(e.stack))
}

// taken is how many bytes a call takes for a stack that may have so many: the runtime doubles
// it each time.
func taken(stack int64) int64 { return min(2*stack, mostStack) }

// grow asks for what the guest has taken since, and for more of a stack that it has come to
// the end of.
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
