// Package launch starts processes and makes sure that they end.
//
// Each process leads its own group and dies with Orla: the direct child by a parent death signal,
// and the processes that it forks by the guard, a process that outlives Orla for as long as that
// takes (SPEC C4, D3). The package knows nothing about protocols.
//
// Its invariant: before Close returns, every process that Start returned is reaped, and its group is
// empty or killed. The one exception is a process that SIGKILL does not end: that is logged, and
// Orla stops waiting for it.
package launch

import (
	"cmp"
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
	"github.com/orla-project/orla/internal/launch/mainthread"
	"github.com/orla-project/orla/internal/launch/slack"
	"github.com/orla-project/orla/internal/launch/trees"
)

// DefaultGrace is the time between SIGTERM and SIGKILL if Spec.Grace is zero. It is the grace of
// simple tools (SPEC C4); a capsule has its stop_grace_ms.
const DefaultGrace = 2 * time.Second

// Options configures a Local.
type Options struct {
	// Guard is the command line of the guard process, which must call guard.Run with the argument that
	// is appended. Its first element is the absolute path of the program. If nil, there is no guard, and
	// only direct children are sure to die when Orla is killed.
	Guard []string
	// GuardLater says that the guard is started before the first process of Guarded, and not at once.
	GuardLater bool
	// Cgroup is the parent of the cgroups for processes with Spec.Cell. If nil, they have none.
	Cgroup *cgroup.Root
	// Before is what the program before has given; nil for none.
	Before *State
	// Log receives the failures of the guard, and processes that SIGKILL does not end. Required.
	Log *slog.Logger
}

// Local starts processes on this machine. Its methods may be called from any goroutine.
type Local struct {
	log      *slog.Logger
	instance string
	outer    string // the mark in Orla's own environment, if any
	forks
	tracking
	watching guard.Options // of guard
	reaper   *reaper
	cgroup   *cgroup.Root
	cells    cells
	procs    sync.WaitGroup
	mu       sync.Mutex // guards the fields that follow, and procs.Add against Close
	guard    guardian   // nil if there is none
	closed   bool
	given    []int // the processes that were given to the program that follows
}

// forks has the goroutines and threads that fork processes.
type forks struct {
	spawns  chan spawn
	spawner sync.WaitGroup
	stays   chan struct{} // one token for each caller of Run that keeps its thread
}

// tracking finds out which processes belong together.
type tracking struct {
	tags   *trees.Tagger
	groups *guard.Groups
	finder *trees.Finder
}

// guardian ends the processes that a killed Orla leaves; see guard.Guard.
type guardian interface {
	// Await waits for the guard process: a process that is started before it would outlive an Orla that
	// is killed at that moment.
	Await(ctx context.Context) error
	// Dismiss ends the guard process.
	Dismiss()
	// Leave leaves it to the program that follows.
	Leave() *guard.State
}

// Spec describes one process to start.
type Spec struct {
	// Path is the program: an absolute path on this machine, unless the Launcher says otherwise.
	Path string
	Argv []string // the whole argument vector, including Argv[0]
	Env  []string // Start adds the mark (package trees)
	Dir  string
	// ID identifies the descendants of this process, also those that left its group. It must be unique.
	// If "", Start makes one.
	ID string
	// Whole says that the whole tree ends with the process: when the process exits, Start kills what it
	// leaves at once, including daemons (SPEC D2). If false, daemons go on, and the rest of the group
	// gets SIGTERM first.
	Whole bool
	// Input, if not nil, is the whole stdin of the process.
	Input []byte
	// Grace is the time between SIGTERM and SIGKILL. If zero, DefaultGrace.
	Grace time.Duration
	// Cell is the name of the tree's own cgroup, if cgroups are available. If "", it has none. It is
	// only for trees that are Whole: what is left in the cgroup is killed.
	Cell string
	// Cells is the parent of the Cell's cgroup. If nil, Options.Cgroup is.
	Cells *cgroup.Root
	// Limits are the limits of the tree, as far as they can be enforced here; see Process.Applied. They
	// need a Cell.
	Limits cgroup.Limits

	// Secrets are more variables for Env, as KEY=VALUE. Only the process may see their values: they are
	// not put on a command line or into the objects of a cluster.
	Secrets []string
	// Expose lists files and folders of this machine, as absolute paths, that a process without access
	// to the machine's files can read. A Local ignores it: its processes can see all files.
	Expose []string
	// Files are passed to the process as descriptors 3 and up. The caller closes them.
	Files []*os.File
	// Untagged says that something else ends what the process leaves, as a container engine ends its
	// containers. The process gets no tag then.
	Untagged bool
	// Sys, if not nil, changes the attributes of the process, such as its namespaces. Only a Local uses
	// it, for Launchers that start processes through one.
	Sys func(*syscall.SysProcAttr)

	stay  bool // the caller has locked its thread and keeps it until the process ends
	brief bool // the caller waits for the end of the process: no other program is executed before it
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
	tag  uint64 // the tag that its descendants inherit; 0 if there is none
	slot *int32 // its entry in the guard's table
	free bool   // it could not be put into its cgroup
	err  error
}

// NewLocal returns a Local. The caller must Close it.
func NewLocal(opts Options) (*Local, error) {
	before := cmp.Or(opts.Before, &State{})
	l := &Local{
		log:      opts.Log,
		instance: cmp.Or(before.Instance, rand.Text()),
		outer:    os.Getenv(trees.MarkVariable),
		forks:    forks{spawns: make(chan spawn), stays: make(chan struct{}, stays())},
		reaper:   newReaper(strayPause, before.children()...),
		cgroup:   opts.Cgroup,
	}
	l.tags = trees.NewTagger(l.instance, l.outer != "", before.LastTag)
	var err error
	if l.groups, err = guard.NewGroups(opts.Guard != nil); err != nil {
		opts.Log.Warn("no memory can be shared with the guard process; it goes by the environment of processes alone", "err", err)
	}
	l.finder = trees.NewFinder(l.instance, l.groups.List)
	l.watching = guard.Options{Argv: opts.Guard, Instance: l.instance, Groups: l.groups, Children: onMain{l.reaper}, Tags: l.tags, Before: before.Guard, Log: opts.Log}
	if !opts.GuardLater {
		l.watch()
	}
	ready := make(chan struct{})
	l.spawner.Go(func() { l.spawnLoop(ready) })
	<-ready
	return l, nil
}

// watch starts the guard, if there is to be one and there is none yet.
func (l *Local) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guard == nil && l.watching.Argv != nil && !l.closed {
		reserveThreads()
		l.guard = guard.Start(l.watching)
	}
}

// spawnLoop starts the processes whose callers do not keep their thread, all from one thread that
// lives until Close: the kernel sends the parent death signal when the thread that forked ends, not
// the process (golang/go#27505). Processes that may outlive this program are started on the main thread,
// if that is kept.
func (l *Local) spawnLoop(ready chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	close(ready)
	for s := range l.spawns {
		s.reply <- l.fork(s, l.tags.Begin()) // a caller that waits for the turn would have to be woken first
	}
}

// fork starts a process, in its turn. The process dies with the thread that calls fork.
func (l *Local) fork(s spawn, turn *trees.Fork) spawned {
	pid, err := l.reaper.Starting(func() (int, error) {
		return slack.Usual(func() (int, error) { return syscall.ForkExec(s.path, s.argv, s.attr) })
	})
	tag := l.tags.End(turn, pid, s.untagged)
	if err != nil {
		return spawned{err: err}
	}
	return spawned{pid: pid, tag: tag, slot: l.groups.Add(pid)} // right after the fork, since Orla may be killed at any moment
}

// errClosed is returned by Start after Close.
var errClosed = errors.New("the launcher is closed")

// Start starts a process with pipes as its standard streams. Every error is a *fault.Error that
// names the program and says what to do. ctx bounds only the start; Stop ends the process.
func (l *Local) Start(ctx context.Context, spec Spec) (*LocalProcess, error) {
	p, err := l.begin(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.openStreams()
	go p.attend() // attend does procs.Done
	return p, nil
}

// begin starts a process without a goroutine that attends to it.
func (l *Local) begin(ctx context.Context, spec Spec) (*LocalProcess, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, diagnose(spec, errClosed)
	}
	l.procs.Add(1)
	watched := l.guard
	l.mu.Unlock()

	p, err := l.start(ctx, spec, watched)
	if err != nil {
		l.procs.Done()
		return nil, err
	}
	return p, nil
}

// start starts a process when its guard, if it is not nil, is there.
func (l *Local) start(ctx context.Context, spec Spec, watched guardian) (*LocalProcess, error) {
	if watched != nil {
		if err := watched.Await(ctx); err != nil {
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
		leaving: leaving{left: make(chan struct{})},
	}
	p.grace = cmp.Or(p.grace, DefaultGrace)
	p.applied = l.apply(s, cell, spec.Limits)
	l.cells.add(p.pid, cell)
	if len(rest) > 0 {
		p.feed, p.pipes[0] = os.NewFile(uintptr(p.pipes[0]), "|"), none
		p.feeding.Go(func() {
			_, _ = p.feed.Write(rest) // the process may not read it
			_ = p.feed.Close()
		})
	}
	return p, nil
}

// busyPauses are the pauses between attempts to execute a file that is still open for writing: in an
// editor that saves it, or in a sibling between fork and exec (golang/go#22315).
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
	if err := context.Cause(ctx); err != nil {
		return spawned{err: err}
	}
	s := spawn{path: spec.Path, argv: spec.Argv, attr: attr, untagged: spec.Untagged}
	if spec.stay {
		turn := l.tags.Begin()
		runtime.LockOSThread() // not before: a goroutine that waits with its thread takes longer
		made := l.fork(s, turn)
		if made.err != nil {
			runtime.UnlockOSThread() // else run does
		}
		return made
	}
	if !spec.brief {
		var made spawned
		if mainthread.Do(func() { made = l.fork(s, l.tags.Begin()) }) {
			return made
		}
	}
	reply := make(chan spawned, 1)
	s.reply = reply
	select {
	case l.spawns <- s:
		return <-reply // the spawner always answers: forks are short
	case <-ctx.Done():
		return spawned{err: context.Cause(ctx)}
	}
}

// Close waits until every process is reaped and its group is gone, and then ends the guard. It does
// not stop processes: their owners do. Start fails from now on.
func (l *Local) Close() {
	if !l.end() {
		return
	}
	if l.guard != nil {
		l.guard.Dismiss()
	}
	l.reaper.close()
	l.groups.Close()
}

// end is Close, but for the guard. It reports false if Close was called before.
func (l *Local) end() bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.closed = true
	l.mu.Unlock()
	l.procs.Wait()
	close(l.spawns)
	l.spawner.Wait()
	return true
}
