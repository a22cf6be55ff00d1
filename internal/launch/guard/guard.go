// Package guard keeps a process that outlives Orla for the moment it takes to end what
// a killed Orla leaves behind (SPEC C4, D3, docs/decisions/0005).
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

	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/trees"
)

const (
	// goodbye is what Orla writes to its guard when all is in order.
	goodbye = 'q'
	// guardPatience bounds how long a guard hunts for what Orla left.
	guardPatience = 5 * time.Second
	// dismissPatience bounds how long a guard has to end after the goodbye.
	dismissPatience = 2 * time.Second
)

// Children knows which children of this process are waited for.
type Children interface {
	// Starting makes start's process one that is. Forget ends that.
	Starting(start func() (pid int, err error)) (int, error)
	Forget(pid int)
}

// Options configures a Guard. All are required.
type Options struct {
	Argv     []string // of the guard process, the program's absolute path first
	Instance string
	Groups   *Groups
	Children Children
	Tags     *trees.Tagger
	Log      *slog.Logger
}

// Guard is the parent's side of the guard process.
type Guard struct {
	Options
	begun   chan struct{} // closed when the first guard process was started, or could not be
	done    chan struct{} // closed when no guard is wanted any more
	stopped sync.WaitGroup
}

// Start keeps a guard process running until Dismiss.
func Start(opts Options) *Guard {
	g := &Guard{Options: opts, begun: make(chan struct{}), done: make(chan struct{})}
	g.stopped.Go(g.keep)
	return g
}

// Await waits for the first guard process: what is started before it would outlive
// an Orla that is killed in that moment.
func (g *Guard) Await(ctx context.Context) error {
	select {
	case <-g.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep starts the guard again when somebody ends it, at most once a second.
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

// runOnce runs one guard process until it ends or is dismissed. It calls begun when
// that was started, or cannot be.
func (g *Guard) runOnce(begun func()) error {
	defer begun()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // closing is the message
	files := []*os.File{r, r}        // what is no memory is no table
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
	g.Tags.Begin()
	pid, err := g.Children.Starting(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	g.Tags.End(pid, true)
	begun()
	_ = r.Close() // the child has its own
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		g.Children.Forget(cmd.Process.Pid)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-g.done:
	}
	if _, err := w.Write([]byte{goodbye}); err != nil {
		g.Log.Warn("dismiss the guard process", "err", err)
	}
	_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped one cannot obey; it may have ended
	select {
	case err := <-ended:
		return err
	case <-time.After(dismissPatience):
	}
	g.Log.Warn("the guard process does not end; killing it", "pid", pid)
	_ = cmd.Process.Kill() // it may have ended just now
	return <-ended
}

// Dismiss ends the guard process.
func (g *Guard) Dismiss() {
	close(g.done)
	g.stopped.Wait()
}

// Run is the whole life of a guard process, which the command in
// Options.Argv must call with its last argument. It waits until Orla is gone;
// if Orla did not say goodbye, it kills every process that Orla left behind, and
// removes the cgroups that Orla had made. It returns the exit code.
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
