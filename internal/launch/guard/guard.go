// Package guard runs a process that outlives a killed Orla until it has ended what that leaves
// behind (SPEC C4, D3, docs/decisions/0005).
package guard

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/launch/carry"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/trees"
)

const (
	// goodbye is what Orla writes to its guard when it ends in order.
	goodbye = 'q'
	// guardPatience bounds how long a guard looks for processes that Orla left.
	guardPatience = 5 * time.Second
	// dismissPatience bounds how long a guard may take to end after the goodbye.
	dismissPatience = 2 * time.Second
)

// Children registers the children that this process waits for.
type Children interface {
	// Starting calls start and registers the process until Forget.
	Starting(start func() (pid int, err error)) (int, error)
	Forget(pid int)
}

// State is a guard process that the program before has left; see Guard.Leave.
type State struct {
	PID  int `json:"pid"`
	Pipe int `json:"pipe"` // the descriptor whose end the process waits for
}

// Options configures a Guard. All fields but Before are required.
type Options struct {
	Argv     []string // the command line of the guard process; the program is an absolute path
	Instance string
	Groups   *Groups
	Children Children
	Tags     *trees.Tagger
	Before   *State // the guard process of the program before, which is dismissed when another one watches; nil for none
	Log      *slog.Logger
}

// Guard manages the guard process, in Orla.
type Guard struct {
	Options
	begun   chan struct{} // closed when the first guard process has started, or failed to
	done    chan struct{} // closed by Dismiss and Leave
	stopped sync.WaitGroup
	before  *os.File // the pipe of Options.Before; nil when that is dismissed; owned by keep
	left    bool     // done was closed by Leave; read after that
	now     *State   // what Leave returns; nil without a process; owned by keep
}

// Start keeps a guard process running until Dismiss.
func Start(opts Options) *Guard {
	g := &Guard{Options: opts, begun: make(chan struct{}), done: make(chan struct{})}
	if b := opts.Before; b != nil {
		var err error
		if g.before, err = carry.File(b.Pipe, "guard"); err != nil {
			opts.Log.Warn("dismiss the guard process", "err", err)
		}
	}
	g.stopped.Go(g.keep)
	return g
}

// Await waits for the first guard process: a process that is started before it would outlive an Orla
// that is killed at that moment.
func (g *Guard) Await(ctx context.Context) error {
	select {
	case <-g.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep starts the guard again whenever it ends, at most once a second.
func (g *Guard) keep() {
	begun := sync.OnceFunc(func() { close(g.begun) })
	for {
		err := g.runOnce(begun)
		select {
		case <-g.done:
			return
		default:
		}
		g.Log.Warn("the guard process ended; starting it again", "err", err)
		select {
		case <-g.done:
			return
		case <-time.After(time.Second):
		}
	}
}

// runOnce runs one guard process until it ends or is dismissed. It calls begun when the process has
// started, or has failed to.
func (g *Guard) runOnce(begun func()) error {
	defer begun()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // closing it tells the guard
	files := []*os.File{r, r}        // r stands for the table if there is no shared memory
	if g.Groups.file != nil {
		files[1] = g.Groups.file
	}
	cmd := &exec.Cmd{
		Path:        g.Argv[0],
		Args:        append(append([]string{"orla"}, g.Argv[1:]...), g.Instance),
		Env:         guardEnviron(),
		Dir:         "/",
		ExtraFiles:  files,
		SysProcAttr: guardProcAttr(),
	}
	fork := g.Tags.Begin()
	pid, err := g.Children.Starting(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	g.Tags.End(fork, pid, true)
	begun()
	_ = r.Close() // the child has its own
	if err != nil {
		return err
	}
	if w := g.before; w != nil {
		g.before = nil
		g.stopped.Go(func() { g.dismissBefore(w) })
	}
	ended := g.awaitEnd(cmd.Process)
	select {
	case err := <-ended:
		return err
	case <-g.done:
	}
	if g.leave(pid, w) {
		return nil
	}
	return g.dismiss(cmd.Process, w, ended)
}

// awaitEnd returns a channel that receives why a guard process has ended.
func (g *Guard) awaitEnd(p *os.Process) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := p.Wait()
		g.Children.Forget(p.Pid)
		ended <- err
	}()
	return ended
}

// dismiss says goodbye to a guard process, and waits for its end.
func (g *Guard) dismiss(p *os.Process, w io.Writer, ended <-chan error) error {
	if _, err := w.Write([]byte{goodbye}); err != nil {
		g.Log.Warn("dismiss the guard process", "err", err)
	}
	_ = p.Signal(syscall.SIGCONT) // a stopped process cannot end; it may have ended
	select {
	case err := <-ended:
		return err
	case <-time.After(dismissPatience):
	}
	g.Log.Warn("the guard process does not end; killing it", "pid", p.Pid)
	_ = p.Kill() // it may have just ended
	return <-ended
}

// dismissBefore ends the guard process of the program before: another one watches now.
func (g *Guard) dismissBefore(w *os.File) {
	defer func() { _ = w.Close() }() // nobody reads it any more
	p, err := os.FindProcess(g.Before.PID)
	if err != nil {
		return // it has ended
	}
	_ = g.dismiss(p, w, g.awaitEnd(p)) // how it ended does not matter
}

// leave keeps a guard process for the program that follows, if Leave asks for that.
func (g *Guard) leave(pid int, w *os.File) bool {
	if !g.left {
		return false
	}
	fd, err := carry.Dup(w)
	if err != nil {
		g.Log.Warn("the guard process is not kept", "err", err)
		return false
	}
	g.now = &State{PID: pid, Pipe: fd}
	return true
}

// Leave is called in place of Dismiss when another program is to be executed in this process. It leaves the guard
// process alone, and returns how that program finds it; nil if there is none.
func (g *Guard) Leave() *State {
	g.left = true
	close(g.done)
	g.stopped.Wait()
	return g.now
}

// Dismiss ends the guard process.
func (g *Guard) Dismiss() {
	close(g.done)
	g.stopped.Wait()
}

// Run is the main function of a guard process. The command in Options.Argv must call it with its
// last argument. It waits until Orla is gone. If Orla did not say goodbye, Run kills every process
// that Orla left behind, and removes the cgroups that Orla had made. It returns the exit code.
func Run(instance string) int {
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
		live = (&Groups{slots: groupView(mem)}).List()
	}
	// A process may fork just before it is killed, so look until two looks in a row find nothing.
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
	cgroup.Sweep(slog.New(slog.DiscardHandler)) // nothing reads the log
	return 0
}
