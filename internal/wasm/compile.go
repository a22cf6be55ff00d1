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

// code is a compiled module with a wazero runtime of its own: limits and linking in wazero apply to
// a whole runtime.
type code struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache // nil without a disk cache
	module   wazero.CompiledModule
	size     int64 // approximate bytes of memory
	instance int64 // bytes of a call before it runs, without its linear memory
}

// close releases the code. No call may be running. It cannot be cancelled.
func (c *code) close(ctx context.Context) {
	_ = c.runtime.Close(ctx) // it fails only for open files, of which there are none
	if c.cache != nil {
		_ = c.cache.Close(ctx) // it fails only for open files, of which there are none
	}
}

// compile compiles a module. It first adds the metering, which also checks everything that the
// compiler relies on.
func (r *Runtime) compile(module []byte, limits Limits) (*code, error) {
	// The metered module does not depend on the limits, so the disk has it only once.
	metered, instance, err := wasmfuel.Instrument(module, wasmfuel.Options{})
	if err != nil {
		return nil, invalid("%v", err)
	}
	disk := r.disk()
	defer disk.lock(metered)()
	c, err := build(r.ctx, metered, limits, disk.folder(metered))
	if err != nil && disk != nil {
		disk.remove(metered) // the disk entry may be the cause
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
	const perByte, more = 8, 512 << 10 // bytes for each byte of the module: a Go program takes 5; and for what a few bytes can declare
	c.size = perByte*int64(len(metered)) + more
	c.instance = instance
	disk.keep(metered)
	return c, nil
}

// build compiles a module in a new runtime. It loads the code from folder if it is there; "" means
// no folder.
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
		if r := recover(); r != nil { // the compiler panics for some modules
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
	// With one worker, the compiler runs on this goroutine, where panics are recovered. With more, it
	// would check ctx between functions, but a panic would end Orla.
	c.module, err = c.runtime.CompileModule(experimental.WithCompilationWorkers(ctx, 1), module)
	return c, err
}

// stopped is the value that yield panics with: wazero ends the guest and returns it.
type stopped struct{ cause error }

// Error returns why the guest was ended.
func (s *stopped) Error() string { return s.cause.Error() }

// Unwrap returns why the guest was ended.
func (s *stopped) Unwrap() error { return s.cause }

// yield is called by the guest at least once per millisecond, and usually much more often. Native
// code can only be stopped here: by a deadline, the garbage collector or the scheduler.
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
