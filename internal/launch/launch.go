// Package launch starts processes and ends them for certain.
//
// Each process leads a group of its own and dies with Orla: the direct child by
// a death signal, whatever it forked by a guard process that outlives Orla for
// the moment it takes (SPEC C4, D3). The package knows nothing of what a
// process says; it is not for protocols.
//
// Its invariant: a process that Start returned is reaped, and its group is
// empty or killed, before Close returns. The one exception is what SIGKILL does
// not end, which is logged and given up.
package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/cgroup"
)

// DefaultGrace is the time between SIGTERM and SIGKILL (SPEC C4).
const DefaultGrace = 2 * time.Second

// Options configures a Local.
type Options struct {
	// Guard is the command that runs RunGuard with this process's word for
	// it: argv with the program's absolute path first. If nil, no guard is
	// kept, and only direct children are sure to die when Orla is killed.
	Guard []string
	// Cgroup is where processes with Spec.Cell get cgroups of their own. If nil,
	// they get none.
	Cgroup *cgroup.Root
	// Log receives what goes wrong with the guard and with processes that do
	// not die. Required.
	Log *slog.Logger
}

// Local starts processes on this machine. Its methods may be called from any
// goroutine.
type Local struct {
	log      *slog.Logger
	instance string
	outer    string // the mark of the process that this one runs in, if any
	spawns   chan spawn
	groups   *groupTable
	census   *census
	guard    *guard
	heir     *heir // nil unless Orla is the first process
	cgroup   *cgroup.Root
	cells    cells
	procs    sync.WaitGroup
	spawner  sync.WaitGroup
	mu       sync.Mutex // guards closed and procs.Add against Close
	closed   bool
}

// Spec describes one process to start.
type Spec struct {
	// Path is the program: absolute, and of this machine, unless the Launcher says otherwise.
	Path string
	Argv []string // the whole argument vector, Argv[0] included
	Env  []string // Start adds the mark
	Dir  string
	// ID tells this process's descendants from those of any other, also when
	// they left its group, so no two processes may have the same. If "", Start
	// makes one.
	ID string
	// Whole says that nothing of the tree may outlive the process: when it ends
	// by itself, what it leaves is killed at once, daemons included (SPEC D2).
	// If false, a daemon lives on, and the rest of its group ends politely.
	Whole bool
	// Input, if not nil, is all that the process can read from its stdin.
	Input []byte
	// Grace is the time between SIGTERM and SIGKILL. If zero, DefaultGrace.
	Grace time.Duration
	// Cell is what to name a cgroup after that holds the tree and nothing else,
	// where cgroups can be had. If "", it has none of its own. It is for trees
	// that are Whole: whatever is left in it is killed.
	Cell string
	// Cells makes the Cell. If nil, Options.Cgroup does.
	Cells *cgroup.Root
	// Limits bound what the tree may take, as far as that is possible here; see
	// Process.Held. They need a Cell.
	Limits cgroup.Limits

	// Secrets are more of Env, as KEY=VALUE, whose values are not to be seen by
	// others than the process: not on a command line, not in a cluster's objects.
	Secrets []string
	// Expose names the files and folders of this machine, absolute, that a
	// process sees, and only reads, where it does not see the machine's files.
	// A Local ignores it: there a process sees all that Orla does.
	Expose []string
	// Files are given to the process as descriptors 3 and up. They stay the caller's.
	Files []*os.File
	// Sys, if not nil, changes how the process is made: its namespaces. Only a
	// Local heeds it, for the Launchers that start by it.
	Sys func(*syscall.SysProcAttr)
}

type spawn struct {
	path  string
	argv  []string
	attr  *os.ProcAttr
	reply chan<- spawned
}

type spawned struct {
	proc *os.Process
	slot *int32 // its entry in the guard's table
	free bool   // it could not be put into its cgroup
	err  error
}

// NewLocal returns a Local that is ready to start processes. The caller must
// Close it.
func NewLocal(opts Options) (*Local, error) {
	reserveThreads()
	l := &Local{
		log:      opts.Log,
		instance: rand.Text(),
		outer:    os.Getenv(markVar),
		spawns:   make(chan spawn),
		heir:     newHeir(),
		cgroup:   opts.Cgroup,
	}
	var err error
	if l.groups, err = newGroupTable(opts.Guard != nil); err != nil {
		opts.Log.Warn("no memory can be shared with the guard process; it goes by the environment of processes alone", "err", err)
	}
	l.census = newCensus(l.instance, l.groups)
	if opts.Guard != nil {
		l.guard = startGuard(opts.Guard, l.instance, l.groups, l.heir, opts.Log)
	}
	ready := make(chan struct{})
	l.spawner.Go(func() { l.spawnLoop(ready) })
	<-ready
	return l, nil
}

// spawnLoop starts every process from one thread that lives as long as they
// do: the death signal is sent when the thread that forked ends, not the
// process (golang/go#27505).
func (l *Local) spawnLoop(ready chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	close(ready)
	for s := range l.spawns {
		p, err := l.heir.starting(func() (*os.Process, error) { return os.StartProcess(s.path, s.argv, s.attr) })
		var slot *int32
		if err == nil {
			slot = l.groups.add(p.Pid) // here, since Orla may be killed at any moment
		}
		s.reply <- spawned{proc: p, slot: slot, err: err}
	}
}

// errClosed is returned by Start after Close.
var errClosed = errors.New("the launcher is closed")

// Start starts a process with pipes for its three streams. Every error is a
// *fault.Error that names the program and what to do. ctx bounds only the
// start; end the process with Stop.
func (l *Local) Start(ctx context.Context, spec Spec) (*LocalProcess, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, diagnose(spec, errClosed)
	}
	l.procs.Add(1)
	l.mu.Unlock()

	p, err := l.start(ctx, spec)
	if err != nil {
		l.procs.Done()
		return nil, err
	}
	go p.attend() // leaves procs
	return p, nil
}

func (l *Local) start(ctx context.Context, spec Spec) (*LocalProcess, error) {
	var pipes pipes
	rest, err := pipes.open(spec.Input)
	if err != nil {
		return nil, diagnose(spec, err)
	}
	if spec.ID == "" {
		spec.ID = rand.Text()
	}
	mark := l.instance + "." + spec.ID
	var pidfd int
	attr := &os.ProcAttr{
		Dir:   spec.Dir,
		Env:   marked(append(slices.Clip(spec.Env), spec.Secrets...), l.outer, mark),
		Files: append(pipes.child[:], spec.Files...),
		Sys:   sysProcAttr(&pidfd),
	}
	if spec.Sys != nil {
		spec.Sys(attr.Sys)
	}
	cell := l.newCell(spec)
	s, err := l.spawnInto(ctx, cell, spec, attr)
	pipes.closeChild()
	if err != nil {
		pipes.closeParent()
		l.removeCell(cell)
		return nil, diagnose(spec, err)
	}
	p := &LocalProcess{
		Stdin:  pipes.parent[0],
		Stdout: pipes.parent[1],
		Stderr: pipes.parent[2],
		local:  l,
		proc:   s.proc,
		pid:    s.proc.Pid,
		pidfd:  pidfd,
		mark:   mark,
		whole:  spec.Whole,
		cell:   cell,
		grace:  spec.Grace,
		slot:   s.slot,
		ended:  make(chan struct{}),
		ending: make(chan *ending, 1),
		kill:   make(chan struct{}),
		exited: make(chan struct{}),
		gone:   make(chan struct{}),
	}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	p.held = l.hold(s, cell, spec.Limits)
	l.cells.add(p.pid, cell)
	if len(rest) > 0 {
		p.feed, p.Stdin = p.Stdin, nil
		p.feeding.Go(func() {
			_, _ = p.feed.Write(rest) // a process need not read it
			_ = p.feed.Close()
		})
	}
	return p, nil
}

// busyPauses are the waits between tries of a file that is still open for
// writing somewhere: an editor saving it, or a sibling between fork and exec
// (golang/go#22315).
var busyPauses = [...]time.Duration{
	10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond,
	80 * time.Millisecond, 100 * time.Millisecond,
}

func (l *Local) spawnRetrying(ctx context.Context, spec Spec, attr *os.ProcAttr) (spawned, error) {
	reply := make(chan spawned, 1)
	for try := 0; ; try++ {
		select {
		case l.spawns <- spawn{spec.Path, spec.Argv, attr, reply}:
		case <-ctx.Done():
			return spawned{}, context.Cause(ctx)
		}
		s := <-reply // the spawner always answers: a fork is never long
		if !errors.Is(s.err, syscall.ETXTBSY) || try == len(busyPauses) {
			return s, s.err
		}
		select {
		case <-time.After(busyPauses[try]):
		case <-ctx.Done():
			return spawned{}, context.Cause(ctx)
		}
	}
}

// Close waits until every process is reaped and its group is gone, and then
// ends the guard. It does not stop processes: their owners do. Start fails
// from now on.
func (l *Local) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.mu.Unlock()
	l.procs.Wait()
	close(l.spawns)
	l.spawner.Wait()
	l.guard.dismiss()
	l.heir.close()
	l.groups.close()
}

// pipes are the three streams between Orla and one process.
type pipes struct {
	child  [3]*os.File
	parent [3]*os.File
}

// open makes the pipes. Only Orla's ends are polled: os.Pipe would register the
// process's ends as well, and take that back when they are handed over. As much
// of input as fits goes into stdin right away; when that is all, Orla's end is
// closed and nil. The rest is returned.
func (p *pipes) open(input []byte) (rest []byte, err error) {
	defer func() {
		if err != nil {
			p.closeChild()
			p.closeParent()
		}
	}()
	for i := range p.child {
		ours, theirs, err := newPipe()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			ours, theirs = theirs, ours
		}
		p.child[i] = os.NewFile(uintptr(theirs), "|child")
		if err := syscall.SetNonblock(ours, true); err != nil {
			_ = syscall.Close(ours) // nothing was written to it
			return nil, err
		}
		if i == 0 && input != nil {
			if rest = put(ours, input); len(rest) == 0 {
				_ = syscall.Close(ours) // all is in the pipe
				continue
			}
		}
		p.parent[i] = os.NewFile(uintptr(ours), "|")
	}
	return rest, nil
}

// put writes what fits into a fresh pipe, and returns the rest.
func put(fd int, input []byte) (rest []byte) {
	for len(input) > 0 {
		n, err := syscall.Write(fd, input)
		switch {
		case n > 0:
			input = input[n:]
		case err != syscall.EINTR:
			return input // it is full
		}
	}
	return nil
}

func (p *pipes) closeChild()  { closeAll(p.child[:]) }
func (p *pipes) closeParent() { closeAll(p.parent[:]) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe of ours: nothing can be lost by closing it
		}
	}
}
