package launch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/orla-project/orla/internal/cgroup"
)

const (
	// goodbye is what a Local writes to its guard when all is in order.
	goodbye = 'q'
	// groupSlots bounds the groups that the guard is told of at one time. Past
	// it, Linux still finds processes by their environment.
	groupSlots = 4096
	groupBytes = groupSlots * 4
	// guardPatience bounds how long a guard hunts for what Orla left.
	guardPatience = 5 * time.Second
	// dismissPatience bounds how long a guard has to end after the goodbye.
	dismissPatience = 2 * time.Second
)

// groupTable holds the ids of the groups that live now. The guard sees it when
// its memory is shared: that costs a call two stores, where a message to the
// guard would wake it twice.
type groupTable struct {
	file   *os.File   // nil unless it is shared
	mem    []byte     // the same
	mu     sync.Mutex // guards the fields that follow
	slots  []int32
	free   []*int32
	closed bool
}

// newGroupTable returns a table that can be used in any case, and the reason
// when it should be shared and cannot be.
func newGroupTable(shared bool) (*groupTable, error) {
	if !shared {
		return tableOf(make([]int32, groupSlots)), nil
	}
	f, err := sharedFile()
	if err != nil {
		return tableOf(make([]int32, groupSlots)), err
	}
	mem, err := mapGroups(f)
	if err != nil {
		_ = f.Close() // nothing was written to it
		return tableOf(make([]int32, groupSlots)), err
	}
	t := tableOf(groupView(mem))
	t.file, t.mem = f, mem
	return t, nil
}

func tableOf(slots []int32) *groupTable {
	t := &groupTable{slots: slots}
	for i := range slots {
		t.free = append(t.free, &slots[i])
	}
	return t
}

// namelessFile returns a file in the folder for temporary ones that has no
// name any more. It is written once: a store into a hole of a mapped file is
// deadly when the disk is full.
func namelessFile() (*os.File, error) {
	f, err := os.CreateTemp("", "orla-groups-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, groupBytes))
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		_ = f.Close() // of no use to anybody
		return nil, err
	}
	return f, nil
}

func mapGroups(f *os.File) ([]byte, error) {
	if err := f.Truncate(groupBytes); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, groupBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func groupView(mem []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/4)
}

// add enters a group and returns its slot, or nil when there is none left.
func (t *groupTable) add(pgid int) *int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		return nil
	}
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	atomic.StoreInt32(slot, int32(pgid))
	return slot
}

// release strikes a group out. A nil slot is none.
func (t *groupTable) release(slot *int32) {
	if slot == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return // a process that was given up has ended after all
	}
	atomic.StoreInt32(slot, 0)
	t.free = append(t.free, slot)
}

// groups lists the groups that live now.
func (t *groupTable) groups() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var live []int
	for i := range t.slots {
		if g := atomic.LoadInt32(&t.slots[i]); g > 1 {
			live = append(live, int(g))
		}
	}
	return live
}

func (t *groupTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.slots = true, nil
	if t.file == nil {
		return
	}
	_ = syscall.Munmap(t.mem) // the process has no other use for the range
	_ = t.file.Close()        // never written through the file
}

// guard is the parent's side of the guard process.
type guard struct {
	argv     []string
	instance string
	groups   *groupTable
	reaper   *reaper // must not take the guard for a child that nobody waits for
	tags     *tagger
	log      *slog.Logger
	begun    chan struct{} // closed when the first guard process was started, or could not be
	done     chan struct{} // closed when no guard is wanted any more
	stopped  sync.WaitGroup
}

// startGuard keeps a guard process running until dismiss.
func startGuard(argv []string, instance string, groups *groupTable, reaper *reaper, tags *tagger, log *slog.Logger) *guard {
	g := &guard{argv: argv, instance: instance, groups: groups, reaper: reaper, tags: tags, log: log, begun: make(chan struct{}), done: make(chan struct{})}
	g.stopped.Go(g.keep)
	return g
}

// await waits for the first guard process: what is started before it would outlive
// an Orla that is killed in that moment. A nil guard is none.
func (g *guard) await(ctx context.Context) error {
	if g == nil {
		return nil
	}
	select {
	case <-g.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep starts the guard again when somebody ends it, at most once a second.
func (g *guard) keep() {
	begun := sync.OnceFunc(func() { close(g.begun) })
	for {
		err := g.runOnce(begun)
		select {
		case <-g.done:
			return
		default:
		}
		g.log.Warn("the guard process ended; starting it again", "err", err)
		select {
		case <-g.done:
			return
		case <-time.After(time.Second):
		}
	}
}

// runOnce runs one guard process until it ends or is dismissed. It calls begun when
// that was started, or cannot be.
func (g *guard) runOnce(begun func()) error {
	defer begun()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // closing is the message
	files := []*os.File{r, r}        // what is no memory is no table
	if g.groups.file != nil {
		files[1] = g.groups.file
	}
	cmd := &exec.Cmd{
		Path:        g.argv[0],
		Args:        append(append([]string{"orla"}, g.argv[1:]...), g.instance),
		Env:         guardEnviron(),
		Dir:         "/",
		ExtraFiles:  files,
		SysProcAttr: guardProcAttr(),
	}
	g.tags.begin()
	pid, err := g.reaper.starting(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	g.tags.end(pid, true)
	begun()
	_ = r.Close() // the child has its own
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		g.reaper.forget(cmd.Process.Pid)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-g.done:
	}
	if _, err := w.Write([]byte{goodbye}); err != nil {
		g.log.Warn("dismiss the guard process", "err", err)
	}
	_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped one cannot obey; it may have ended
	select {
	case err := <-ended:
		return err
	case <-time.After(dismissPatience):
	}
	g.log.Warn("the guard process does not end; killing it", "pid", pid)
	_ = cmd.Process.Kill() // it may have ended just now
	return <-ended
}

func (g *guard) dismiss() {
	if g == nil {
		return
	}
	close(g.done)
	g.stopped.Wait()
}

// RunGuard is the whole life of a guard process, which the command in
// Options.Guard must call with its last argument. It waits until Orla is gone;
// if Orla did not say goodbye, it kills every process that Orla left behind, and
// removes the cgroups that Orla had made. It returns the exit code.
func RunGuard(instance string) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	nameThisProcess("tool-guard")
	orla := os.NewFile(3, "orla")
	table := os.NewFile(4, "groups")
	if orla == nil || table == nil {
		return 2
	}
	last := make([]byte, 1)
	if n, err := io.ReadFull(orla, last); n == 1 && err == nil && last[0] == goodbye {
		return 0
	}
	var live []int
	if mem, err := mapGroups(table); err == nil {
		live = (&groupTable{slots: groupView(mem)}).groups()
	}
	// What is killed may have forked just before, so look until two looks in
	// a row find nothing.
	deadline := time.Now().Add(guardPatience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 2 && time.Now().Before(deadline); <-tick.C {
		var found int
		if found, live = sweepInstance(instance, live); found == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
	cgroup.Sweep(slog.New(slog.DiscardHandler)) // there is nobody to tell
	return 0
}
