package wasm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// entrypoint says which function a call runs, and how.
type entrypoint struct {
	name string
	// buffers says that input and output are buffers in the module's memory, instead of stdin and
	// stdout.
	buffers bool
	// initialize says that _initialize must be called first.
	initialize bool
}

// Names that modules use by convention.
const (
	nameStart      = "_start"
	nameInitialize = "_initialize"
	nameMemory     = "memory"
	nameAllocate   = "allocate"
)

// signature is the type of a function: each byte is an api.ValueType.
type signature struct{ params, results string }

const (
	i32 = string(rune(api.ValueTypeI32))
	i64 = string(rune(api.ValueTypeI64))
)

// The types of the functions that the host calls.
var (
	typeNothing  = signature{}
	typeStatus   = signature{results: i32}
	typeAllocate = signature{params: i32, results: i32}
	typeBuffers  = signature{params: i32 + i32, results: i64}
)

func signatureOf(f api.FunctionDefinition) signature {
	if f == nil {
		return signature{params: "there is none"}
	}
	return signature{string(f.ParamTypes()), string(f.ResultTypes())}
}

// checkImports refuses a module with imports that the host does not have.
func checkImports(module wazero.CompiledModule, wasi bool) error {
	for _, f := range module.ImportedFunctions() {
		from, name, _ := f.Import()
		switch {
		case from == wasmfuel.Host, from == wasi_snapshot_preview1.ModuleName && wasi:
		case from == wasi_snapshot_preview1.ModuleName:
			return invalid("it imports %s of WASI, and enable_wasi is false: set enable_wasi: true", quoted(name))
		case strings.HasPrefix(from, "wasi"):
			return invalid("it is made for %s, and Orla has %s alone: build it for wasip1", quoted(from), wasi_snapshot_preview1.ModuleName)
		default:
			return invalid("it imports %s from %s, which Orla does not have", quoted(name), quoted(from))
		}
	}
	return nil
}

// enter chooses the function to call.
func enter(module wazero.CompiledModule, limits Limits) (entrypoint, error) {
	exports := module.ExportedFunctions()
	name := limits.Entrypoint
	if exports[name] == nil {
		name = nameStart
	}
	if exports[name] == nil {
		return entrypoint{}, invalid("it exports neither a function %s nor %s, but %s", quoted(limits.Entrypoint), nameStart, listed(exports))
	}
	e := entrypoint{name: name}
	if f := exports[nameInitialize]; f != nil && name != nameStart {
		if signatureOf(f) != typeNothing {
			return entrypoint{}, invalid("its %s is not of type () -> ()", nameInitialize)
		}
		e.initialize = true
	}
	switch of := signatureOf(exports[name]); {
	case of == typeBuffers:
		e.buffers = true
		return e, checkBuffers(module, name)
	case of != typeNothing && of != typeStatus:
		return entrypoint{}, invalid("its %s is neither of type () -> (), to read stdin and write stdout, nor (i32, i32) -> i64, to take and return a buffer in memory", quoted(name))
	case !limits.WASI:
		return entrypoint{}, invalid("its %s reads stdin and writes stdout, and enable_wasi is false: set enable_wasi: true", quoted(name))
	}
	return e, nil
}

// checkBuffers checks the exports that an entrypoint with buffers needs.
func checkBuffers(module wazero.CompiledModule, name string) error {
	if signatureOf(module.ExportedFunctions()[nameAllocate]) != typeAllocate {
		return invalid("its %s takes a buffer in memory, but it exports no function %s of type (i32) -> i32", quoted(name), nameAllocate)
	}
	if module.ExportedMemories()[nameMemory] == nil {
		return invalid("its %s takes a buffer in memory, but it exports no memory by the name of %s", quoted(name), nameMemory)
	}
	return nil
}

// listed lists the functions that could be an entrypoint, for a message.
func listed(exports map[string]api.FunctionDefinition) string {
	const most = 20
	var names []string
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		if !strings.HasPrefix(name, wasmfuel.Host) {
			names = append(names, quoted(name))
		}
	}
	switch {
	case len(names) == 0:
		return "no function at all"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// quoted quotes a name from a module, shortened for a message.
func quoted(name string) string {
	const most = 64
	return strconv.Quote(brief.Cut(name, most))
}
