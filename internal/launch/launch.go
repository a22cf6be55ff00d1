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

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/guard"
	"github.com/orla-project/orla/internal/launch/trees"
)

// DefaultGrace is the time between SIGTERM and SIGKILL where a Spec has none, as that of a
// simple tool (SPEC C4). That of a capsule is its stop_grace_ms.
const DefaultGrace = 2 * time.Second

// Options configures a Local.
type Options struct {
	// Guard is the command that runs guard.Run with this process's word for
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
	forks
	tracking
	guard  guardian // nil without one
	reaper *reaper
	cgroup *cgroup.Root
	cells  cells
	procs  sync.WaitGroup
	mu     sync.Mutex // guards closed and procs.Add against Close
	closed bool
}

// forks is where processes are forked.
type forks struct {
	spawns  chan spawn
	spawner sync.WaitGroup
	stays   chan struct{} // one for each process whose caller stays with it; see Run
}

// tracking tells which processes belong to which.
type tracking struct {
	tags   *trees.Tagger
	groups *guard.Groups
	finder *trees.Finder
}

// guardian ends what a killed Orla leaves; see guard.Guard.
type guardian interface {
	// Await waits until there is one: what is started before it would outlive an Orla
	// that is killed in that moment.
	Await(ctx context.Context) error
	// Dismiss ends it.
	Dismiss()
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
	// Process.Applied. They need a Cell.
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
	// Untagged says that others end what the process leaves on purpose, as a
	// container engine ends its containers. It is then not found by its tag.
	Untagged bool
	// Sys, if not nil, changes how the process is made: its namespaces. Only a
	// Local heeds it, for the Launchers that start by it.
	Sys func(*syscall.SysProcAttr)

	stay bool // the caller has locked its thread, and keeps it until the process has ended
}

type spawn struct {
	path     string
	argv     []string
	attr     *syscall.ProcAttr
	untagged bool // as in Spec
	reply    chan<- spawned
}

type spawned struct {
	pid  int
	tag  uint64 // what its descendants inherit; 0 if there is none
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
		outer:    os.Getenv(trees.MarkVariable),
		forks:    forks{spawns: make(chan spawn), stays: make(chan struct{}, stays())},
		reaper:   newReaper(strayPause),
		cgroup:   opts.Cgroup,
	}
	l.tags = trees.NewTagger(l.instance, l.outer != "")
	var err error
	if l.groups, err = guard.NewGroups(opts.Guard != nil); err != nil {
		opts.Log.Warn("no memory can be shared with the guard process; it goes by the environment of processes alone", "err", err)
	}
	l.finder = trees.NewFinder(l.instance, l.groups.List)
	if opts.Guard != nil {
		l.guard = guard.Start(guard.Options{Argv: opts.Guard, Instance: l.instance, Groups: l.groups, Children: l.reaper, Tags: l.tags, Log: opts.Log})
	}
	ready := make(chan struct{})
	l.spawner.Go(func() { l.spawnLoop(ready) })
	<-ready
	return l, nil
}

// spawnLoop starts every process that nobody stays with from one thread that
// lives as long as they do: the death signal is sent when the thread that forked
// ends, not the process (golang/go#27505).
func (l *Local) spawnLoop(ready chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	close(ready)
	for s := range l.spawns {
		s.reply <- l.fork(s)
	}
}

// fork starts a process, which dies with the thread that this runs on.
func (l *Local) fork(s spawn) spawned {
	l.tags.Begin()
	pid, err := l.reaper.Starting(func() (int, error) { return syscall.ForkExec(s.path, s.argv, s.attr) })
	tag := l.tags.End(pid, s.untagged)
	if err != nil {
		return spawned{err: err}
	}
	return spawned{pid: pid, tag: tag, slot: l.groups.Add(pid)} // here, since Orla may be killed at any moment
}

// errClosed is returned by Start after Close.
var errClosed = errors.New("the launcher is closed")

// Start starts a process with pipes for its three streams. Every error is a
// *fault.Error that names the program and what to do. ctx bounds only the
// start; end the process with Stop.
func (l *Local) Start(ctx context.Context, spec Spec) (*LocalProcess, error) {
	p, err := l.begin(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.openStreams()
	go p.attend() // leaves procs
	return p, nil
}

// begin starts a process that nobody attends to yet.
func (l *Local) begin(ctx context.Context, spec Spec) (*LocalProcess, error) {
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
	return p, nil
}

func (l *Local) start(ctx context.Context, spec Spec) (*LocalProcess, error) {
	if l.guard != nil {
		if err := l.guard.Await(ctx); err != nil {
			return nil, diagnose(spec, err)
		}
	}
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
	attr := &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   trees.Marked(append(slices.Clip(spec.Env), spec.Secrets...), l.outer, mark),
		Files: pipes.childAnd(spec.Files),
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
		streams: streams{pipes: pipes.parent},
		local:   l,
		pid:     s.pid,
		pidfd:   pidfd,
		whole:   spec.Whole,
		alone:   leadsNamespace(attr.Sys),
		cell:    cell,
		grace:   spec.Grace,
		traces:  traces{mark: mark, tag: s.tag, slot: s.slot},
		stop:    stop{ended: make(chan struct{}), ending: make(chan *ending, 1), kill: make(chan struct{})},
		outcome: outcome{exited: make(chan struct{}), gone: make(chan struct{})},
	}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	p.applied = l.apply(s, cell, spec.Limits)
	l.cells.add(p.pid, cell)
	if len(rest) > 0 {
		p.feed, p.pipes[0] = os.NewFile(uintptr(p.pipes[0]), "|"), none
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

func (l *Local) spawnRetrying(ctx context.Context, spec Spec, attr *syscall.ProcAttr) (spawned, error) {
	for try := 0; ; try++ {
		s := l.spawnOnce(ctx, spec, attr)
		if !errors.Is(s.err, syscall.ETXTBSY) || try == len(busyPauses) {
			return s, s.err
		}
		if !pace.Sleep(ctx, busyPauses[try]) {
			return spawned{}, context.Cause(ctx)
		}
	}
}

func (l *Local) spawnOnce(ctx context.Context, spec Spec, attr *syscall.ProcAttr) spawned {
	s := spawn{path: spec.Path, argv: spec.Argv, attr: attr, untagged: spec.Untagged}
	if spec.stay {
		if err := context.Cause(ctx); err != nil {
			return spawned{err: err}
		}
		return l.fork(s)
	}
	reply := make(chan spawned, 1)
	s.reply = reply
	select {
	case l.spawns <- s:
		return <-reply // the spawner always answers: a fork is never long
	case <-ctx.Done():
		return spawned{err: context.Cause(ctx)}
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
	if l.guard != nil {
		l.guard.Dismiss()
	}
	l.reaper.close()
	l.groups.Close()
}
