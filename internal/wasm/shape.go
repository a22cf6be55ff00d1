package wasm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/wasmfuel"
)

// What a module may be made of. These bound what a few bytes can make the
// compiler, or an instance, take: a count is four bytes, and what is counted
// may take a hundred each.
const (
	maxFunctions = 250_000
	maxItems     = 100_000   // of every other kind
	maxTypes     = 1_000     // parameters of a function, or results
	maxTables    = 8         // each takes 8 bytes for an element
	maxElements  = 1_000_000 // of a table
	maxLocals    = 50_000    // of a function
	maxFunction  = 4 << 20   // bytes of one
)

// wasiModule is what modules import from that want WASI.
const wasiModule = "wasi_snapshot_preview1"

// The kinds of what is imported and exported.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
)

// shape is what the host has to know of a module.
type shape struct {
	types     []signature
	functions []uint32 // the type of each, the imported ones first
	imports   []imported
	exports   map[string]exported
	memory    *extent // nil: there is none
}

type signature struct{ params, results string }

type imported struct {
	module, name string
	kind         byte
}

type exported struct {
	kind  byte
	index uint32
}

// extent is how large a memory or a table is, and may become.
type extent struct{ least, most uint64 }

// checkImports refuses what the host does not give.
func (s *shape) checkImports(wasi bool) error {
	for _, i := range s.imports {
		switch {
		case i.module == wasiModule && i.kind == kindFunction && wasi:
		case i.module == wasiModule:
			return invalid("it imports %s from %s, and enable_wasi is false: set enable_wasi: true", quoted(i.name), i.module)
		case strings.HasPrefix(i.module, "wasi"):
			return invalid("it imports from %s; Orla has %s alone", quoted(i.module), wasiModule)
		default:
			return invalid("it imports %s from %s, which Orla does not have", quoted(i.name), quoted(i.module))
		}
	}
	return nil
}

// entrypoint is the function that a call runs, and how.
type entrypoint struct {
	name string
	// buffers: it is given a place in memory and returns one, rather than to read
	// stdin and write stdout.
	buffers bool
	// initialize: _initialize is to be called before.
	initialize bool
}

// The names that modules give their functions by convention.
const (
	nameStart      = "_start"
	nameInitialize = "_initialize"
	nameMemory     = "memory"
	nameAllocate   = "allocate"
)

// The types of functions that the host calls.
var (
	typeNothing  = signature{}
	typeStatus   = signature{results: "\x7f"}                     // () -> i32
	typeAllocate = signature{params: "\x7f", results: "\x7f"}     // (size i32) -> i32
	typeBuffers  = signature{params: "\x7f\x7f", results: "\x7e"} // (i32, i32) -> i64
)

// entrypoint chooses the function to call.
func (s *shape) entrypoint(limits Limits) (entrypoint, error) {
	name := limits.Entrypoint
	of, ok := s.function(name)
	if !ok {
		name = nameStart
		if of, ok = s.function(name); !ok {
			return entrypoint{}, invalid("it exports neither %s nor %s; it exports %s", quoted(limits.Entrypoint), nameStart, s.exportedFunctions())
		}
	}
	enter := entrypoint{name: name}
	if of, ok := s.function(nameInitialize); ok && name != nameStart {
		if of != typeNothing {
			return entrypoint{}, invalid("its %s is not of type () -> ()", nameInitialize)
		}
		enter.initialize = true
	}
	switch {
	case of == typeBuffers:
		enter.buffers = true
		return enter, s.checkBuffers(name)
	case of != typeNothing && of != typeStatus:
		return entrypoint{}, invalid("its %s is not of type () -> () (which reads stdin and writes stdout), nor (i32, i32) -> i64 (which is given a place in memory and returns one)", quoted(name))
	case !limits.WASI:
		return entrypoint{}, invalid("its %s is of type () -> (), and cannot read stdin and write stdout while enable_wasi is false: set enable_wasi: true", quoted(name))
	}
	return enter, nil
}

// checkBuffers checks what an entrypoint needs that is given a place in memory.
func (s *shape) checkBuffers(name string) error {
	if of, ok := s.function(nameAllocate); !ok || of != typeAllocate {
		return invalid("its %s is of type (i32, i32) -> i64, and it exports no function %s of type (i32) -> i32", quoted(name), nameAllocate)
	}
	if e, ok := s.exports[nameMemory]; !ok || e.kind != kindMemory {
		return invalid("its %s is of type (i32, i32) -> i64, and it exports no memory with the name %s", quoted(name), nameMemory)
	}
	return nil
}

// function is the type of an exported function.
func (s *shape) function(name string) (signature, bool) {
	e, ok := s.exports[name]
	if !ok || e.kind != kindFunction || int(e.index) >= len(s.functions) {
		return signature{}, false
	}
	of := s.functions[e.index]
	if int(of) >= len(s.types) {
		return signature{}, false
	}
	return s.types[of], true
}

// exportedFunctions lists what could be an entrypoint, for people.
func (s *shape) exportedFunctions() string {
	const most = 20
	var names []string
	for name, e := range s.exports {
		if e.kind == kindFunction {
			names = append(names, quoted(name))
		}
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return "no function"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// quoted is a module's own word, short enough for a reason.
func quoted(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return fmt.Sprintf("%q", name)
}

// metered is the module with meters in it.
func metered(module []byte, maxMemory int64) ([]byte, error) {
	out, err := wasmfuel.Instrument(module, wasmfuel.Options{MaxMemory: maxMemory})
	if err != nil && err.Error() == "not written yet (at byte 0x0)" {
		return module, nil // until it is
	}
	if err != nil {
		return nil, fault.New(fault.RuntimePolicyInvalid, "the module cannot be run: %v", err)
	}
	return out, nil
}
