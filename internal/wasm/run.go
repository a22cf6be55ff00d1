package wasm

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// Outcome is the result of a call. With an error, it has what there was until then.
type Outcome struct {
	Stdout     []byte // the answer of the module, for both kinds of entrypoint
	Stderr     []byte // at most 64 KiB of it
	FuelUsed   int64
	MemoryPeak int64 // bytes of linear memory
}

// Run runs the module once, in a new instance, with input, and returns its answer of at most
// maxOutput bytes; if that is zero, 8 MiB. The error is a *fault.Error: execution_failed for a trap,
// an exit code, too much output and the end of the fuel; the cause of ctx; not_ready with
// ErrEvicted.
func (m *Module) Run(ctx context.Context, input []byte, maxOutput int64) (Outcome, error) {
	c, err := m.begin()
	if err != nil {
		return Outcome{}, err
	}
	defer m.end()
	at := &turn{places: m.runtime.computing, owner: m.owner, only: runtime.GOMAXPROCS(0) == 1}
	if err := at.begin(ctx); err != nil {
		return Outcome{}, fault.Unsent(err)
	}
	defer at.end()
	counted, release := m.runtime.memory.Open(ctx, m.owner)
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	account := turns.AccountOf(counted)
	need := func(more int64) error {
		if account.Covers(more) {
			return account.Need(ctx, more)
		}
		return at.wait(ctx, func() error { return account.Need(ctx, more) })
	}
	if err := need(c.instance + taken(stackAtFirst)); err != nil {
		return Outcome{}, fault.Unsent(err)
	}
	memory, err := reserve(m.limits.MaxMemory, need)
	if err != nil {
		return Outcome{}, err
	}
	defer memory.free()
	i := &instance{
		code: c, limits: m.limits, enter: m.enter, memory: memory, turn: at, input: input, maxOutput: maxOutput,
		stdout: output{most: maxOutput, full: func() { cancel(tooMuch(maxOutput)) }},
		stderr: tail{},
		extra:  extra{need: need},
	}
	answer, err := i.run(ctx)
	return Outcome{Stdout: answer, Stderr: i.stderr.bytes(), FuelUsed: i.fuelUsed, MemoryPeak: memory.peak}, err
}

func tooMuch(most int64) error {
	return fault.New(fault.ExecutionFailed, "the module answered with more than %d bytes", most)
}

// instanceKey is the key of an *instance in the context of its call.
type instanceKey struct{}

// instance is one call.
type instance struct {
	code      *code
	limits    Limits
	enter     entrypoint
	memory    *memory
	turn      *turn
	input     []byte
	maxOutput int64
	extra     extra

	stdout   output
	stderr   tail
	fuelUsed int64
}

// run makes the instance, calls it, and closes it.
func (i *instance) run(ctx context.Context) ([]byte, error) {
	// Not with the deadline of ctx: making an instance cannot be cancelled, and a running one yields.
	ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return i.memory }))
	module, err := i.code.runtime.InstantiateModule(ctx, i.code.module, i.config(ctx))
	if err != nil {
		return nil, i.failed(ctx, err)
	}
	defer func() { _ = module.Close(ctx) }() // it fails only for open files, of which there are none
	if i.memory.lacks != nil {
		return nil, fault.Unsent(i.memory.lacks)
	}
	ctx = context.WithValue(ctx, instanceKey{}, i)
	fuel, slice := module.ExportedGlobal(wasmfuel.Fuel), module.ExportedGlobal(wasmfuel.Slice)
	if fuel == nil { // cannot happen with metered modules
		answer, err := i.call(ctx, module)
		return answer, err
	}
	i.extra.begin(module)
	fuel.(api.MutableGlobal).Set(wasmfuel.Steps(i.limits.Fuel))
	answer, err := i.call(ctx, module)
	used, exhausted := wasmfuel.Used(i.limits.Fuel, fuel.Get(), slice.Get())
	i.fuelUsed = used
	switch {
	case ctx.Err() != nil && (err != nil || exhausted):
		return answer, fault.From(context.Cause(ctx))
	case exhausted:
		return nil, fault.New(fault.ExecutionFailed, "the module ran out of fuel: it may use %d; spec.wasm.fuel gives it more", i.limits.Fuel)
	}
	return answer, err
}

// config says what the module can access: with WASI its streams, clocks and random numbers, and
// nothing else.
func (i *instance) config(ctx context.Context) wazero.ModuleConfig {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	if !i.limits.WASI {
		return config
	}
	return config.
		WithStdin(bytes.NewReader(i.input)).WithStdout(until{ctx, i.turn, &i.stdout}).WithStderr(until{ctx, i.turn, &i.stderr}).
		WithSysWalltime().WithSysNanotime().WithNanosleep(sleeper(ctx, i.turn)).
		WithRandSource(random{ctx})
}

// call calls the functions of the module, in order.
func (i *instance) call(ctx context.Context, module api.Module) ([]byte, error) {
	before := []string{wasmfuel.Start}
	if i.enter.initialize {
		before = append(before, nameInitialize)
	}
	for _, name := range before {
		if f := module.ExportedFunction(name); f != nil {
			if _, err := f.Call(ctx); err != nil {
				return nil, i.failed(ctx, err)
			}
		}
	}
	enter := module.ExportedFunction(i.enter.name)
	if i.enter.buffers {
		return i.passBuffers(ctx, module, enter)
	}
	status, err := enter.Call(ctx)
	if err == nil && len(status) > 0 && uint32(status[0]) != 0 {
		err = sys.NewExitError(uint32(status[0]))
	}
	if err = i.failed(ctx, err); err != nil {
		return i.stdout.data, err
	}
	return i.stdout.data, nil
}

// passBuffers copies the input into the module's memory, and the answer out of it.
func (i *instance) passBuffers(ctx context.Context, module api.Module, enter api.Function) ([]byte, error) {
	size := uint64(len(i.input))
	at, err := module.ExportedFunction(nameAllocate).Call(ctx, size)
	if err != nil {
		return nil, i.failed(ctx, err)
	}
	memory := module.ExportedMemory(nameMemory)
	if !memory.Write(uint32(at[0]), i.input) {
		return nil, fault.New(fault.ExecutionFailed, "the module's allocate(%d) returned %#x, where there is no room for that", size, uint32(at[0]))
	}
	answer, err := enter.Call(ctx, uint64(uint32(at[0])), size)
	if err != nil {
		return nil, i.failed(ctx, err)
	}
	address, length := uint32(answer[0]>>32), uint32(answer[0])
	if int64(length) > i.maxOutput {
		return nil, tooMuch(i.maxOutput)
	}
	data, ok := memory.Read(address, length)
	if !ok {
		return nil, fault.New(fault.RuntimePolicyInvalid, "the module's answer of %d bytes at %#x is not in its memory", length, address)
	}
	if err := i.turn.room(ctx, int64(length)); err != nil {
		return nil, fault.From(err)
	}
	return bytes.Clone(data), nil
}

// failed returns the error for what a function of the module returned; nil for no error and for exit
// code 0.
func (i *instance) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := asStopped(err); cause != nil {
		return fault.From(cause)
	}
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		if exit.ExitCode() == 0 {
			return nil
		}
		return fault.New(fault.ExecutionFailed, "the module exited with code %d%s", exit.ExitCode(), i.words())
	}
	trap, _, _ := strings.Cut(err.Error(), "\n")
	trap = strings.TrimSuffix(strings.TrimPrefix(trap, "wasm error: "), " (recovered by wazero)")
	return fault.Wrap(fault.ExecutionFailed, err, "the module trapped: %s%s", trap, i.words())
}

// words returns the first and the last lines that the module wrote to stderr: languages differ in
// where they write the cause.
func (i *instance) words() string {
	const most = 1 << 10
	said := strings.TrimSpace(strings.ToValidUTF8(string(i.stderr.bytes()), "\uFFFD"))
	if said == "" {
		return ""
	}
	if len(said) > 2*most {
		said = strings.ToValidUTF8(said[:most], "") + "\n[…]\n" + strings.ToValidUTF8(said[len(said)-most:], "")
	}
	return "; on stderr it said:\n" + said
}
