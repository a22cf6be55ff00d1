// Package wasm runs WebAssembly modules (SPEC-TOOLS 3.7): bytes in, bytes out, under limits that the
// module cannot change. It knows neither tools nor the contract of the bytes, and fetches nothing.
//
//	Compile ── meter ─► compile ─► Module ── Run ─► Outcome
//	                                         a new instance for each call
//
// Modules are untrusted. internal/wasm/wasmfuel checks everything that the compiler relies on, and
// makes modules pay for what they do. Each compiled module has its own wazero runtime, so modules
// are never linked to each other.
//
// Its invariant: after a call nothing of it remains, and a module can access only its input, its
// output, clocks and random numbers.
package wasm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// Defaults (SPEC-TOOLS 1.2).
const (
	DefaultMaxMemory  = 64 << 20
	DefaultFuel       = 1_000_000
	DefaultEntrypoint = "run"
)

const (
	// MaxModule is the largest size of a module in bytes.
	MaxModule = 64 << 20
	// maxCached bounds all compiled modules that are kept, in bytes.
	maxCached = 256 << 20
	// closePatience is how long Close waits for compilations.
	closePatience = 2 * time.Second
	// DefaultTotalMemory is the default of Options.TotalMemory, in bytes.
	DefaultTotalMemory = 512 << 20
	// maxLoading bounds the bytes of all modules that are being read or wait for compilation. A single
	// module may exceed it.
	maxLoading = 2 * MaxModule
	// manyBytes is the size of a module from which on the garbage is collected right after its
	// compilation.
	manyBytes = 8 << 20
	// maxCompiling is how many modules are compiled at once, if Go has enough processors, so that a slow
	// one does not delay all others.
	maxCompiling = 2
)

// ErrEvicted is in the chain of the error of a Run that did not start because its Module was removed
// to make room for others. Compile returns a new one.
var ErrEvicted = errors.New("the compiled module was removed from memory")

// Options configures a Runtime.
type Options struct {
	// CacheDir is a folder for compiled code. Since that is native code, the folder is used only if
	// nobody else may write to it. If empty, compiled code is only in memory.
	CacheDir string
	// Log receives errors of the cache. If nil, they are not logged. Required with a CacheDir.
	Log *slog.Logger
	// MaxCached bounds the compiled modules in memory, in approximate bytes; a single one may be larger.
	// If zero, 256 MiB.
	MaxCached int64
	// TotalMemory bounds the memory of all calls together, in bytes: linear memory, and what instances,
	// call stacks and references take. A single call may exceed it. If zero, 512 MiB.
	TotalMemory int64
}

// Limits are the limits of a module's calls.
type Limits struct {
	MaxMemory  int64  // bytes of linear memory. If zero, 64 MiB
	Fuel       int64  // units of work of a call. If zero, 1 000 000
	WASI       bool   // whether the module has stdin, stdout and stderr, by WASI
	Entrypoint string // the function to call, if it is exported, else _start. If empty, run
}

func (l Limits) filled() Limits {
	l.MaxMemory = cmp.Or(l.MaxMemory, DefaultMaxMemory)
	l.Fuel = min(cmp.Or(l.Fuel, DefaultFuel), wasmfuel.MaxFuel)
	l.Entrypoint = cmp.Or(l.Entrypoint, DefaultEntrypoint)
	return l
}

// Runtime compiles modules and keeps them. Its methods may be called from any goroutine. It uses no
// resources until the first module.
type Runtime struct {
	opts    Options
	disk    func() *disk    // opens the disk cache; nil if there is none
	ctx     context.Context // of the compilations, which belong to no single call
	cancel  context.CancelFunc
	working sync.WaitGroup
	places  *turns.Queue // for compilations, which go on when the call that started them ends

	computing *turns.Queue // for calls, see turn
	memory    *turns.Room  // for calls
	loading   *turns.Room  // for modules before their compilation

	mu      sync.Mutex // guards the fields that follow, and those of the entries
	entries map[key]*entry
	clock   uint64 // increases with each use
	closed  bool
}

// key has everything that compiled code depends on.
type key struct {
	module [sha256.Size]byte
	pages  uint32
	wasi   bool
}

// entry is a module that is compiled or being compiled.
type entry struct {
	done chan struct{} // closed when code or err is set
	code *code
	err  error
	used uint64 // the clock at its last use
	runs int    // running calls
	gone bool   // it is no longer in entries; its last call closes the code
}

// NewRuntime returns a Runtime. The caller must Close it.
func NewRuntime(opts Options) *Runtime {
	opts.MaxCached = cmp.Or(opts.MaxCached, maxCached)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	return &Runtime{
		opts:   opts,
		disk:   sync.OnceValue(func() *disk { return openDisk(opts.CacheDir, opts.Log) }),
		ctx:    ctx,
		cancel: cancel,
		places: turns.NewQueue(min(maxCompiling, processors()), 1),

		computing: turns.NewQueue(processors(), 0),
		memory:    turns.NewRoom(cmp.Or(opts.TotalMemory, DefaultTotalMemory)),
		loading:   turns.NewRoom(maxLoading),

		entries: map[key]*entry{},
	}
}

// SetTotalMemory changes Options.TotalMemory. Running calls keep their memory.
func (r *Runtime) SetTotalMemory(bytes int64) { r.memory.Resize(bytes) }

// Close releases all modules; those that are running after their calls. A compilation cannot be
// cancelled, and a malicious module can make it take a minute: Close waits for closePatience, and
// does not wait longer.
func (r *Runtime) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	pace.Await(nil, &r.working, closePatience)
	r.mu.Lock()
	idle := r.releaseLocked(func(*entry) bool { return true })
	r.mu.Unlock()
	r.closeAll(idle)
}

// Module is a compiled module with its limits. Run may be called from any goroutine.
type Module struct {
	runtime *Runtime
	entry   *entry
	limits  Limits
	enter   entrypoint
	owner   turns.Owner // whose calls it runs
}

// For returns the module for the calls of an owner, whose share of processors and memory they use.
// Otherwise calls have the zero owner.
func (m *Module) For(owner turns.Owner) *Module {
	mine := *m
	mine.owner = owner
	return &mine
}

// Compile returns the module with its limits. Concurrent callers share one compilation, which goes
// on when ctx ends. The error is a
// *fault.Error: runtime_policy_invalid for a module that cannot be run, execution_failed after a panic, else the cause of
// ctx.
func (r *Runtime) Compile(ctx context.Context, module []byte, limits Limits) (*Module, error) {
	return r.compiled(ctx, turns.Owner{}, module, limits, nil)
}

// Load is Compile for the module that read returns, and for a call of an owner; owners take turns.
// Errors of read are returned unchanged.
// Modules that are large, or wait for compilation, are bounded together: read counts its bytes by
// the turns.Held in its context, as origin's share, and they are held until the module is compiled.
// The origin is where the module comes from, not the caller, since other callers wait for the same
// module.
func (r *Runtime) Load(ctx context.Context, owner, origin turns.Owner, read func(context.Context) ([]byte, error), limits Limits) (*Module, error) {
	counted, release := r.loading.Open(ctx, origin)
	defer release()
	module, err := read(counted)
	if err != nil {
		return nil, err
	}
	return r.compiled(ctx, owner, module, limits, turns.AccountOf(counted))
}

// compiled is Compile for a call of an owner. account is passed on to the compilation.
func (r *Runtime) compiled(ctx context.Context, owner turns.Owner, module []byte, limits Limits, account *turns.Account) (*Module, error) {
	limits = limits.filled()
	if len(module) > MaxModule {
		return nil, invalid("it has %d bytes; a module may have %d", len(module), MaxModule)
	}
	k := key{sha256.Sum256(module), pages(limits.MaxMemory), limits.WASI}
	e, err := r.find(k, module, limits, owner, account)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.done:
	case <-ctx.Done():
	case <-r.ctx.Done():
		return nil, stopping()
	}
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if fault.CodeOf(cause) == fault.Timeout {
			return nil, fault.Wrap(fault.Timeout, cause, "the module was not compiled before the deadline; compilation goes on for later calls")
		}
		return nil, fault.From(cause)
	}
	if e.err != nil {
		return nil, e.err
	}
	at, err := enter(e.code.module, limits)
	if err != nil {
		return nil, err
	}
	return &Module{runtime: r, entry: e, limits: limits, enter: at}, nil
}

// find returns the module's entry. If there is none, it adds one and starts compiling.
func (r *Runtime) find(k key, module []byte, limits Limits, owner turns.Owner, account *turns.Account) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, stopping()
	}
	e := r.entries[k]
	if e == nil {
		e = &entry{done: make(chan struct{})}
		r.entries[k] = e
		compiling, release := account.Beside()
		account.Pass(compiling)
		r.working.Go(func() {
			defer release()
			r.fill(k, e, module, limits, owner)
			if len(module) > manyBytes {
				runtime.GC() // without it the heap may grow to several times what is in use
			}
		})
	}
	r.useLocked(e)
	return e, nil
}

// fill compiles a module. If that fails, the entry is removed after its waiters got the error.
func (r *Runtime) fill(k key, e *entry, module []byte, limits Limits, owner turns.Owner) {
	defer close(e.done)
	c, err := r.compileInTurn(module, limits, owner)
	r.mu.Lock()
	e.code, e.err = c, err
	if err != nil {
		delete(r.entries, k)
	}
	idle := r.trimLocked(e)
	if c != nil && e.gone { // Close has not waited
		idle = append(idle, c)
	}
	r.mu.Unlock()
	r.closeAll(idle)
}

// compileInTurn is compile when it is the owner's turn. It runs on a goroutine that belongs to no
// call, so it recovers panics.
func (r *Runtime) compileInTurn(module []byte, limits Limits, owner turns.Owner) (c *code, err error) {
	defer recovered.To(r.opts.Log, "compile a WASM module", func(any) { c, err = nil, errPanicked })
	if r.places.Take(r.ctx, owner) != nil {
		return nil, stopping()
	}
	defer r.places.Give(owner)
	return r.compile(module, limits)
}

// errPanicked is the error of a compilation during which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "the module was not compiled: this failed inside Orla; its log has the details")

func (r *Runtime) useLocked(e *entry) {
	r.clock++
	e.used = r.clock
}

// trimLocked removes the least recently used modules until the rest fits, except kept. It returns
// those to close.
func (r *Runtime) trimLocked(kept *entry) (idle []*code) {
	for {
		var total int64
		var oldest *entry
		for _, e := range r.entries {
			if e.code == nil {
				continue // it is not compiled yet
			}
			total += e.code.size
			if e != kept && (oldest == nil || e.used < oldest.used) {
				oldest = e
			}
		}
		if total <= r.opts.MaxCached || oldest == nil {
			return idle
		}
		idle = append(idle, r.releaseLocked(func(e *entry) bool { return e == oldest })...)
	}
}

// releaseLocked removes entries. It returns the code of those that are not running.
func (r *Runtime) releaseLocked(which func(*entry) bool) (idle []*code) {
	for k, e := range r.entries {
		if !which(e) {
			continue
		}
		delete(r.entries, k)
		e.gone = true
		if e.runs == 0 && e.code != nil {
			idle = append(idle, e.code)
		}
	}
	return idle
}

func (r *Runtime) closeAll(codes []*code) {
	for _, c := range codes {
		c.close(r.ctx)
	}
}

// begin keeps the module's code open until end is called.
func (m *Module) begin() (*code, error) {
	r := m.runtime
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, stopping()
	case m.entry.gone:
		return nil, fault.Unsent(fault.Wrap(fault.NotReady, ErrEvicted, "the module had to make room for others"))
	}
	m.entry.runs++
	r.useLocked(m.entry)
	return m.entry.code, nil
}

func (m *Module) end() {
	r := m.runtime
	r.mu.Lock()
	m.entry.runs--
	last := m.entry.gone && m.entry.runs == 0
	r.mu.Unlock()
	if last {
		m.entry.code.close(r.ctx)
	}
}

func stopping() error { return fault.New(fault.NotReady, "Orla is stopping") }

// invalid is the error for a module that cannot be run.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.RuntimePolicyInvalid, "the module cannot be run: "+format, args...)
}

// pages returns how many whole pages of memory fit into bytes.
func pages(bytes int64) uint32 {
	return uint32(min(max(bytes, 0)/pageSize, maxPages))
}

const (
	pageSize = 64 << 10
	maxPages = 1 << 16
)
