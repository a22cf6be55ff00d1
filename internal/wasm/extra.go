package wasm

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// maxReferences bounds what a call asks for by ref.func: a call that is beyond the memory of
// all calls would go on.
const maxReferences = 1 << 20

// extra is what a call takes of Orla's memory, besides its linear memory, while it runs. The
// guest counts it itself, and yields often enough.
type extra struct {
	room       api.MutableGlobal // the guest takes from it what its references are
	need       func(more int64) error
	references int64 // bytes of them that it has asked for
}

// grow asks for what the guest has taken since.
func (e *extra) grow() error {
	const step = 256 << 10 // taken at a time
	taken := -int64(e.room.Get())
	if taken <= e.references {
		return nil
	}
	if taken > maxReferences*wasmfuel.Reference {
		return fault.New(fault.ExecutionFailed, "the module made more than %d references to functions in one call, with ref.func: it must keep them, not make them again", maxReferences)
	}
	more := taken + step - e.references
	e.references += more
	return e.need(more)
}
