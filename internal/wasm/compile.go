package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// code is a compiled module and the runtime that it alone lives in: a limit of
// wazero's is a runtime's, and so is what can be linked.
type code struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache // nil without a disk
	module   wazero.CompiledModule
	size     int64 // bytes that it takes, more or less
	instance int64 // bytes that a call takes besides its linear memory, before it runs
}

// close lets go of the code, which no call may run. ctx ends nothing.
func (c *code) close(ctx context.Context) {
	_ = c.runtime.Close(ctx) // it fails for files that are open alone
	if c.cache != nil {
		_ = c.cache.Close(ctx) // the same
	}
}

// compile makes code of a module: it is metered first, which bounds all that the
// compiler believes of it.
func (r *Runtime) compile(module []byte, limits Limits) (*code, error) {
	// What it makes does not depend on the limits, so that the disk has it once.
	metered, instance, err := wasmfuel.Instrument(module, wasmfuel.Options{})
	if err != nil {
		return nil, invalid("%v", err)
	}
	disk := r.disk()
	defer disk.lock(metered)()
	c, err := build(r.ctx, metered, limits, disk.folder(metered))
	if err != nil && disk != nil {
		disk.remove(metered) // it may be what is at fault
		c, err = build(r.ctx, metered, limits, "")
	}
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return nil, invalid("%s", text)
	}
	if err := checkImports(c.module, limits.WASI); err != nil {
		c.close(r.ctx)
		return nil, err
	}
	const perByte = 8 // what is compiled, over what it is compiled from
	c.size = perByte * int64(len(metered))
	c.instance = instance
	disk.keep(metered)
	return c, nil
}

// build compiles a module in a runtime of its own. What it finds in folder it
// does not compile again; "" is not a folder.
func build(ctx context.Context, module []byte, limits Limits, folder string) (c *code, err error) {
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(pages(limits.MaxMemory)).
		WithDebugInfoEnabled(false)
	c = &code{}
	if folder != "" {
		if c.cache, err = wazero.NewCompilationCacheWithDir(folder); err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(c.cache)
	}
	c.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	defer func() {
		if r := recover(); r != nil { // of the compiler, whose panics are about the module
			err = fmt.Errorf("the compiler gave up: %v", r)
		}
		if err != nil {
			c.close(ctx)
			c = nil
		}
	}()
	if limits.WASI {
		if _, err := wasi_snapshot_preview1.Instantiate(ctx, c.runtime); err != nil {
			return c, err
		}
	}
	yielder := c.runtime.NewHostModuleBuilder(wasmfuel.Host)
	yielder.NewFunctionBuilder().WithGoFunction(api.GoFunc(yield), nil, nil).Export(wasmfuel.Yield)
	if _, err := yielder.Instantiate(ctx); err != nil {
		return c, err
	}
	// One worker is this goroutine, whose panics are recovered from. With more it
	// would look at ctx between two functions, and a panic of theirs would end Orla.
	c.module, err = c.runtime.CompileModule(experimental.WithCompilationWorkers(ctx, 1), module)
	return c, err
}

// stopped is what yield panics with: wazero ends the guest and returns it.
type stopped struct{ cause error }

// Error says why the guest was ended.
func (s *stopped) Error() string { return s.cause.Error() }

// Unwrap returns why the guest was ended.
func (s *stopped) Unwrap() error { return s.cause }

// yield is called by the guest each millisecond at least, as a rule much more often. Native
// code can be stopped nowhere else: not by a deadline, the garbage collector or the
// scheduler.
func yield(ctx context.Context, _ []uint64) {
	if ctx.Err() != nil {
		panic(&stopped{context.Cause(ctx)})
	}
	i := ctx.Value(instanceKey{}).(*instance)
	if err := i.extra.grow(); err != nil {
		panic(&stopped{err})
	}
	if err := i.turn.pass(ctx); err != nil {
		panic(&stopped{err})
	}
}

// asStopped returns why yield ended the guest; nil if it did not.
func asStopped(err error) error {
	if s, ok := errors.AsType[*stopped](err); ok {
		return s.cause
	}
	return nil
}
