// Package wasm runs WebAssembly modules (SPEC-TOOLS 3.7): bytes in, bytes out,
// under limits that the host keeps and the module cannot move. It knows neither
// tools nor the contract that the bytes follow, and fetches nothing.
//
//	Compile ── meter ─► compile ─► Module ── Run ─► Outcome
//	                                         a fresh instance for each call
//
// Modules come from strangers. internal/wasm/wasmfuel bounds all that the compiler
// would believe, and makes them pay for what they do. Each compiled module has a
// runtime of its own, so that what one was given is never linked to another.
//
// Its invariant: of a call nothing stays, neither memory nor time, and a module
// reaches nothing but its input, its output, clocks and random numbers.
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
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// What holds where nothing else is said (SPEC-TOOLS 1.2).
const (
	DefaultMaxMemory  = 64 << 20
	DefaultFuel       = 1_000_000
	DefaultEntrypoint = "run"
)

const (
	// MaxModule is how large a module may be.
	MaxModule = 64 << 20
	// maxCached bounds the compiled modules that are kept, together.
	maxCached = 256 << 20
	// closePatience is how long Close waits for what is being compiled.
	closePatience = 2 * time.Second
	// DefaultTotalMemory is how many bytes all calls have together; see Options.
	DefaultTotalMemory = 512 << 20
	// maxLoading bounds the bytes of modules that are being read, or wait to be compiled, of which
	// a single one may go on beyond it.
	maxLoading = 2 * MaxModule
	// manyBytes is how large a module is whose memory is collected as soon as it is compiled.
	manyBytes = 8 << 20
	// maxCompiling is how many modules are compiled at once, where Go has processors enough:
	// a slow one must not keep all others waiting.
	maxCompiling = 2
)

// ErrEvicted is in the chain of the error of a Run that did not begin, since its
// Module had to make room for others. Compile gives another.
var ErrEvicted = errors.New("the compiled module was let go")

// Options of a Runtime.
type Options struct {
	// CacheDir keeps what was compiled. It holds native code, so it is used only
	// if nobody else may write to it. If empty, memory alone does.
	CacheDir string
	// Log takes what is wrong. If nil, nothing does. Required with a CacheDir.
	Log *slog.Logger
	// MaxCached is how many bytes of compiled modules are kept, more or less; a
	// single one may be larger. If zero, 256 MiB.
	MaxCached int64
	// TotalMemory is how many bytes all calls together have: of linear memory, and of what
	// their instances, call stacks and references take besides. A single one of them may go
	// on beyond it. If zero, 512 MiB.
	TotalMemory int64
}

// Limits bound a module's calls.
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

// Runtime compiles modules and keeps them. Its methods may be called from any
// goroutine. It takes nothing until the first module comes.
type Runtime struct {
	opts    Options
	disk    func() *disk    // nil: there is no cache on disk
	ctx     context.Context // of the compilations, which are nobody's call alone
	cancel  context.CancelFunc
	working sync.WaitGroup
	places  *turns.Queue // of compilations, which go on after the call that they were begun for

	computing *turns.Queue // of calls, see turn
	memory    *turns.Room  // that calls have
	loading   *turns.Room  // that modules have until they are compiled

	mu      sync.Mutex // guards what follows, and the fields of the entries
	entries map[key]*entry
	clock   uint64 // rises with each use
	closed  bool
}

// key is what compiled code depends on.
type key struct {
	module [sha256.Size]byte
	pages  uint32
	wasi   bool
}

// entry is a module that is compiled, or on its way to be.
type entry struct {
	done chan struct{} // closed when code or err is there
	code *code
	err  error
	used uint64 // the clock at its last use
	runs int    // calls under way
	gone bool   // it is not in entries any more; its last call closes the code
}

// NewRuntime returns a Runtime. Close it.
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

// SetTotalMemory sets Options.TotalMemory. No call loses what it has.
func (r *Runtime) SetTotalMemory(bytes int64) { r.memory.Resize(bytes) }

// Close lets go of all modules, the running ones when their calls are over. A
// compilation cannot be ended, and one of a module that was made for it takes
// a minute: Close waits a moment, and leaves it to the end of the process.
func (r *Runtime) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	compiled := make(chan struct{})
	go func() { // ends with the last compilation
		r.working.Wait()
		close(compiled)
	}()
	select {
	case <-compiled:
	case <-time.After(closePatience):
	}
	r.mu.Lock()
	idle := r.releaseLocked(func(*entry) bool { return true })
	r.mu.Unlock()
	r.closeAll(idle)
}

// Module is a compiled module with its limits. Run may be called from any number
// of goroutines.
type Module struct {
	runtime *Runtime
	entry   *entry
	limits  Limits
	enter   entrypoint
	owner   turns.Owner // whose calls it answers
}

// For returns the module for the calls of an owner, with which it shares processors and
// memory. Without it, a call is nobody's.
func (m *Module) For(owner turns.Owner) *Module {
	mine := *m
	mine.owner = owner
	return &mine
}

// Compile returns the module under its limits. It is compiled once, however many
// ask for it, and goes on to be when ctx ends. The error is a *fault.Error:
// runtime_policy_invalid for what cannot be run, execution_failed after a panic, else
// of ctx.
func (r *Runtime) Compile(ctx context.Context, module []byte, limits Limits) (*Module, error) {
	return r.CompileFor(ctx, turns.Owner{}, module, limits)
}

// CompileFor is Compile for a call of an owner: owners take turns.
func (r *Runtime) CompileFor(ctx context.Context, owner turns.Owner, module []byte, limits Limits) (*Module, error) {
	return r.compiled(ctx, owner, module, limits, nil)
}

// Load is CompileFor of what read returns, whose errors it hands on. Modules that are large, or
// wait to be compiled, are bounded together: read counts what it reads by the turns.Account of its
// context, as origin's share, and it is held until the module is compiled. The origin is where
// the module comes from, and not the caller, since others wait for the same module.
func (r *Runtime) Load(ctx context.Context, owner, origin turns.Owner, read func(context.Context) ([]byte, error), limits Limits) (*Module, error) {
	counted, release := r.loading.Open(ctx, origin)
	defer release()
	module, err := read(counted)
	if err != nil {
		return nil, err
	}
	return r.compiled(ctx, owner, module, limits, turns.AccountOf(counted))
}

// compiled is CompileFor. What the module holds goes to who compiles it.
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
			return nil, fault.Wrap(fault.Timeout, cause, "the module was not compiled before the deadline; that goes on, for the calls to come")
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

// find returns the module's entry, and begins to compile it if there is none.
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
				runtime.GC() // what Orla collects by itself may be several times what is in use
			}
		})
	}
	r.useLocked(e)
	return e, nil
}

// fill compiles a module. One that cannot be is forgotten: whoever waits is told.
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

// compileInTurn is compile when there is a place for one more of its owner. It is called by a
// goroutine that is nobody's call alone, so that a panic ends here.
func (r *Runtime) compileInTurn(module []byte, limits Limits, owner turns.Owner) (c *code, err error) {
	defer recovered.To(r.opts.Log, "compile a WASM module", func(any) { c, err = nil, errPanicked })
	if r.places.Take(r.ctx, owner) != nil {
		return nil, stopping()
	}
	defer r.places.Give(owner)
	return r.compile(module, limits)
}

// errPanicked is why a module was not compiled over which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "the module was not compiled: this failed inside Orla; its log has the details")

func (r *Runtime) useLocked(e *entry) {
	r.clock++
	e.used = r.clock
}

// trimLocked makes room: the modules whose last use was longest ago go, kept
// excepted. It returns those that are to be closed.
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

// releaseLocked forgets entries. It returns the code of those that do not run.
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

// begin keeps the module's code from being closed until end is called.
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

// invalid is the fault of a module that cannot be run.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.RuntimePolicyInvalid, "the module cannot be run: "+format, args...)
}

// pages is how many pages of memory fit into a number of bytes.
func pages(bytes int64) uint32 {
	return uint32(min(max(bytes, 0)/pageSize, maxPages))
}

const (
	pageSize = 64 << 10
	maxPages = 1 << 16
)
