package container

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// process is a container, and the engine's command line for it.
type process struct {
	engine  *Engine
	plan    plan
	cli     *launch.LocalProcess
	stderr  *relay
	applied cgroup.Limits

	finish chan time.Duration // receives the patience of Finish
	stop   chan struct{}      // closed by Stop and Kill
	kill   chan struct{}      // closed by Kill
	once   [3]sync.Once       // for Finish, Stop and Kill

	ordered bool        // the end was requested; owned by attend
	exit    launch.Exit // set before exited is closed
	exited  chan struct{}
	gone    chan struct{}
}

var _ launch.Process = (*process)(nil)

func newProcess(e *Engine, p plan, applied cgroup.Limits) *process {
	return &process{
		engine: e, plan: p, applied: applied,
		finish: make(chan time.Duration, 1),
		stop:   make(chan struct{}), kill: make(chan struct{}),
		exited: make(chan struct{}), gone: make(chan struct{}),
	}
}

// Pid is that of the engine's command line.
func (p *process) Pid() int { return p.cli.Pid() }

// Streams are those of the engine's command line, which are the container's.
func (p *process) Streams() (stdin, stdout, stderr *os.File) {
	return p.cli.Stdin, p.cli.Stdout, p.stderr.out
}

// Exited is closed when the container's process has ended.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the container is removed, or every way to remove it was tried.
func (p *process) Gone() <-chan struct{} { return p.gone }

// Exit returns how the container ended.
func (p *process) Exit() launch.Exit { return p.exit }

// Applied returns the limits that the kernel enforces for containers with these flags.
func (p *process) Applied() launch.Applied { return launch.Applied{Tree: p.applied} }

// Finish ends a process that ends by itself when its input is closed.
func (p *process) Finish(patience time.Duration) {
	p.once[0].Do(func() { p.finish <- patience })
}

// Stop ends it with SIGTERM first.
func (p *process) Stop() { p.once[1].Do(func() { close(p.stop) }) }

// Kill ends it without grace.
func (p *process) Kill() {
	p.once[2].Do(func() { close(p.kill) })
	p.Stop()
}

// attend waits for the container's end and removes it.
func (p *process) attend(ctx context.Context) {
	defer p.engine.work.Done()
	defer close(p.gone)
	if !p.endsByItself() && !p.endsWhenAsked(ctx) {
		p.end(ctx)
	}
	p.stderr.drain()
	p.exit = p.howItEnded(ctx)
	close(p.exited)
	p.removed(ctx)
}

// endsByItself waits until the command line ends or Finish, Stop or Kill is called. It reports
// whether the command line has ended.
func (p *process) endsByItself() bool {
	var late <-chan time.Time
	for {
		select {
		case <-p.cli.Exited():
			return true
		case patience := <-p.finish:
			p.ordered = true
			late = time.After(patience)
		case <-late:
			return false
		case <-p.stop:
			p.ordered = true
			return false
		}
	}
}

// askPause is the first pause between two attempts to signal a container that may not run yet. It doubles up to
// maxAskPause: each attempt is a process of the engine.
const (
	askPause    = 50 * time.Millisecond
	maxAskPause = 400 * time.Millisecond
)

// endsWhenAsked sends SIGTERM by the container's name, and waits for the grace. It does not signal
// the command line: while that makes the container, the signal may be lost.
func (p *process) endsWhenAsked(ctx context.Context) bool {
	p.ordered = true
	grace := cmp.Or(p.plan.spec.Grace, launch.DefaultGrace)
	ctx, cancel := p.untilEnd(ctx, p.kill, grace)
	defer cancel()
	p.signalled(ctx, "TERM")
	<-ctx.Done()
	return launch.IsClosed(p.cli.Exited())
}

// signalled sends a signal to the container until the engine has passed it on, or ctx ends. It reports whether
// the signal was passed on.
func (p *process) signalled(ctx context.Context, name string) bool {
	for pause := askPause; p.signal(ctx, name) != nil; pause = min(2*pause, maxAskPause) {
		if !pace.Sleep(ctx, pause) {
			return false
		}
	}
	return true
}

// untilEnd returns a context that ends with the command line, when kill is closed, and after most.
func (p *process) untilEnd(ctx context.Context, kill <-chan struct{}, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	var waiting sync.WaitGroup
	waiting.Go(func() { // returns at cancel
		select {
		case <-p.cli.Exited():
		case <-kill:
		case <-ctx.Done():
		}
		cancel()
	})
	return ctx, func() { cancel(); waiting.Wait() }
}

// signal sends a signal to the container by its name.
func (p *process) signal(ctx context.Context, name string) error {
	_, err := p.engine.command(ctx, nil, p.plan.made.path, "kill", "--signal="+name, p.plan.name)
	return err
}

// killPatience is how long an engine may take to kill a container, which it may have to make before.
const killPatience = 20 * time.Second

// drainPatience is how long a command line may take to end after its container.
const drainPatience = 3 * time.Second

// end kills the container by its name, and then the command line. It does not kill a command line that still
// makes the container, except after killPatience: podman would leave processes that it does not know.
func (p *process) end(ctx context.Context) {
	ctx, cancel := p.untilEnd(ctx, nil, killPatience)
	defer cancel()
	if p.signalled(ctx, "KILL") {
		select {
		case <-p.cli.Exited():
		case <-time.After(drainPatience):
		}
	}
	if !launch.IsClosed(p.cli.Exited()) {
		p.cli.Kill()
		<-p.cli.Gone() // SIGKILL ends it, or Orla stops waiting for it
	}
}

// Exit codes that may be those of the engine's command line.
const (
	exitEngine     = 125
	exitUnrunnable = 126
	exitNotFound   = 127
	exitKilled     = 128 + int(syscall.SIGKILL)
)

// howItEnded returns how the container ended, and distinguishes its exit code from that of the
// command line.
func (p *process) howItEnded(ctx context.Context) (how launch.Exit) {
	defer recovered.To(p.engine.opts.Log, "find out how a container ended", func(any) { how = launch.Exit{Code: -1, Err: errPanicked} })
	if !launch.IsClosed(p.cli.Exited()) {
		return launch.Exit{Code: -1, Err: fault.New(fault.ExecutionFailed, "%s run does not end", p.plan.made)}
	}
	exit := p.cli.Exit()
	exit.OutOfMemory = false // that of the command line
	if !slices.Contains([]int{exitEngine, exitUnrunnable, exitNotFound, exitKilled}, exit.Code) && exit.Signal == 0 {
		return exit
	}
	if p.ordered {
		return exit
	}
	state, there := p.state(ctx)
	switch {
	case exit.Code == exitKilled && exit.Signal == 0:
		// Podman does not notice every kill for memory. Nothing else should have killed it.
		exit.OutOfMemory = state.OOMKilled || p.plan.made.podman && p.applied.Memory > 0
		return exit
	case exit.Signal == 0 && there && !state.StartedAt.IsZero():
		return exit // the tool's exit code
	}
	return launch.Exit{Code: -1, Err: p.failed(exit)}
}

// failed returns why the engine did not run the process.
func (p *process) failed(exit launch.Exit) error {
	o, m, said := p.plan.opts, p.plan.made, reasonIn(p.stderr.last.bytes())
	p.engine.images.forget(o.imageKey()) // the image may have been removed
	p.engine.verdicts.forget(p.plan.key())
	switch {
	case exit.Signal != 0:
		return fault.New(fault.ExecutionFailed, "%s run was ended by a signal (%s); its container is removed", m, exit.Signal)
	case exit.Code == exitUnrunnable, exit.Code == exitNotFound:
		return fault.New(fault.UnsupportedTool, "%s cannot run %s in image %s: %s", m, p.plan.spec.Path, o.Image, said)
	}
	// The next call checks the image and the engine again.
	return fault.New(fault.IsolationUnavailable, "%s does not start a container of image %s: %s", m, o.Image, said).Again(true)
}

// reasonIn returns why an engine did not run a process, of what its command line has printed. That is the last line, unless
// podman says there that it knows no reason: then it is what the runtime has printed before podman's own lines.
func reasonIn(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := len(lines) - 1
	if bytes.Contains(lines[last], []byte("(no logs from conmon)")) {
		for _, line := range slices.Backward(lines[:last]) {
			if !bytes.HasPrefix(line, []byte(`time="`)) {
				return lastLine(line)
			}
		}
	}
	return lastLine(lines[last])
}

// state is what the engine knows about a container.
type state struct {
	OOMKilled bool
	StartedAt time.Time
}

// state returns it, and whether the container exists.
func (p *process) state(ctx context.Context) (s state, there bool) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	out, err := p.engine.command(ctx, nil, p.plan.made.path, "container", "inspect", "--format", "{{json .State}}", p.plan.name)
	return s, err == nil && json.Unmarshal(out, &s) == nil
}

// removed removes the container, after all other steps.
func (p *process) removed(ctx context.Context) {
	defer recovered.To(p.engine.opts.Log, "remove a container", nil)
	ctx, cancel := p.engine.lasting(ctx)
	defer cancel()
	looks := 1
	if p.ordered || p.exit.Err != nil {
		looks = 2 // the engine may still be making it
	}
	if err := p.engine.remove(ctx, p.plan.made, p.plan.name, looks); err != nil {
		p.engine.opts.Log.Error("a container cannot be removed; it is given up until Orla starts again", "tool", p.plan.opts.Tool, "container", p.plan.name, "err", err)
	}
}

// removePatience bounds all attempts to remove a container together.
const removePatience = 15 * time.Second

// lasting returns a context for cleaning up, which Close does not cancel.
func (e *Engine) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), removePatience)
}

// remove removes a container by its name, running or not, until the engine reports that it was
// removed or, looks times in a row, that it does not exist. If looks is over one, the engine may have been
// killed while it made the container; then remove also ends the processes that the engine does not know.
func (e *Engine) remove(ctx context.Context, m *made, name string, looks int) error {
	err := e.removeKnown(ctx, m, name, looks)
	if err == nil && looks > 1 && m.podman {
		err = endMonitors(ctx, name)
	}
	return err
}

// removeKnown removes what the engine knows of a container.
func (e *Engine) removeKnown(ctx context.Context, m *made, name string, looks int) error {
	args := []string{m.path, "rm", "--force", "--volumes"}
	if m.podman {
		args = append(args, "--time=0") // else podman sends SIGTERM first and waits ten seconds
	}
	var last error
	for none := 0; none < looks; {
		out, err := e.command(ctx, nil, append(args, name)...)
		if err == nil && strings.Contains(string(out), name) {
			return nil // it existed, and is gone now
		}
		out, listErr := e.command(ctx, nil, m.path, "ps", "--all", "--quiet", "--filter=name=^"+name+"$")
		switch {
		case listErr != nil:
			none, last = 0, listErr
		case len(strings.TrimSpace(string(out))) > 0:
			none, last = 0, err
		default:
			none++
			if none == looks {
				return nil
			}
		}
		if !pace.Sleep(ctx, 4*askPause) {
			return cmp.Or(last, ctx.Err())
		}
	}
	return nil
}

// errPanicked is the error of a process during which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "this failed inside Orla; its log has the details")
