package kube

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

var _ launch.Process = (*process)(nil)

// process is a Job. Its methods may be called from any goroutine.
type process struct {
	cluster        *Cluster
	name           string
	limits         cgroup.Limits
	stdout, stderr *os.File        // the reading ends, for the caller
	out            *os.File        // where the log goes; owned by copyLog until ended is closed, then by attend
	ctx            context.Context //nolint:containedctx // for watching the Job and reading its log; cancelled by Stop or attend
	cancel         context.CancelFunc

	// Owned by Start, and then by attend.
	secrets  []string // names of those that are not deleted yet
	last     *pod     // the newest state; not nil after begin
	pod      string   // the pod's name; set by begin, as applied is
	applied  cgroup.Limits
	sights   chan sight
	watching sync.WaitGroup
	logging  sync.WaitGroup
	unread   *fault.Error // why the log is incomplete; owned by copyLog until it returns
	removing sync.WaitGroup

	stopOnce sync.Once
	stop     chan struct{} // closed when the Job is to be deleted
	ended    chan struct{} // closed when the container has ended: the log does not grow any more
	exit     launch.Exit   // set before exited is closed
	exited   chan struct{}
	gone     chan struct{}
}

// Pid is 0: the process is not on this machine.
func (p *process) Pid() int { return 0 }

// Streams returns no stdin, and the whole log as stdout.
func (p *process) Streams() (stdin, stdout, stderr *os.File) { return nil, p.stdout, p.stderr }

// Exited is closed when the container has ended and its log is read. After Stop it is closed at
// once, so that the call can return; Gone follows when the Job is deleted.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the Job is deleted, or removeTime is over.
func (p *process) Gone() <-chan struct{} { return p.gone }

// Exit returns how the container ended.
func (p *process) Exit() launch.Exit { return p.exit }

// Applied returns the limits of the pod in the cluster. The node decides about the number of processes.
func (p *process) Applied() launch.Applied { return launch.Applied{Tree: p.applied} }

// Finish is Stop: the process has no stdin that could end.
func (p *process) Finish(time.Duration) { p.Stop() }

// Stop deletes the Job: its node ends the container by SIGTERM, the grace and SIGKILL. Stop does not
// wait for that. The log that was read until now is the output.
func (p *process) Stop() {
	p.stopOnce.Do(func() {
		close(p.stop)
		p.cancel()
	})
}

// Kill is Stop: only the node can end the container, and it does so with the grace.
func (p *process) Kill() { p.Stop() }

// attend waits for the end of the process, and cleans up.
func (p *process) attend() {
	defer p.cluster.running.Done()
	p.logging.Go(p.copyLog)
	p.removing.Go(p.removeSecrets) // the container has read them
	p.exit = p.awaitEnd()
	close(p.ended)
	p.logging.Wait()
	if p.unread != nil && p.exit.Err == nil && !launch.IsClosed(p.stop) {
		p.exit = launch.Exit{Code: -1, Err: p.unread} // an incomplete output is not an output
	}
	_ = p.out.Close() // closing a pipe loses nothing
	close(p.exited)
	p.cancel()
	p.watching.Wait()
	p.removing.Go(p.removeJob)
	p.removing.Wait()
	close(p.gone)
}

// awaitEnd waits until the container has ended, or Stop is called.
func (p *process) awaitEnd() (exit launch.Exit) {
	defer recovered.To(p.cluster.opts.Log, "wait for a Job", func(any) { exit = launch.Exit{Code: -1, Err: errPanicked} })
	if exit, over := p.judge(sight{pod: p.last}); over {
		return exit
	}
	for {
		select {
		case s := <-p.sights:
			if exit, over := p.judge(s); over {
				return exit
			}
		case <-p.stop:
			return launch.Exit{Code: -1, Err: lost("the Job was deleted before its container had ended")}
		}
	}
}

// judge reports whether the process has ended, and how.
func (p *process) judge(s sight) (launch.Exit, bool) {
	switch {
	case s.err != nil:
		return launch.Exit{Code: -1, Err: fault.From(s.err)}, true
	case s.gone:
		return launch.Exit{Code: -1, Err: p.deleted(p.ctx)}, true
	case s.pod == nil:
		return launch.Exit{}, false
	}
	p.last = s.pod
	exit, over := s.pod.exit()
	if over && exit.Err == nil && s.pod.Metadata.DeletionTimestamp != "" {
		return launch.Exit{Code: -1, Err: p.deleted(p.ctx)}, true // somebody deleted the pod
	}
	return exit, over
}

// deleted says why the pod was deleted, other than by Orla. It takes until ctx ends at most.
func (p *process) deleted(ctx context.Context) *fault.Error {
	ctx, cancel := context.WithTimeout(ctx, hesitation)
	defer cancel()
	for { // the Job's state follows that of its pod
		if err := p.cluster.failed(ctx, p.name); err != nil && ctx.Err() == nil {
			return fault.From(err)
		}
		if !pace.Sleep(ctx, firstLook) {
			return lost("the Job's pod was deleted while it ran, and not by Orla")
		}
	}
}

// abandon removes a Job that did not start.
func (p *process) abandon() {
	p.cancel()
	p.cluster.running.Go(func() {
		p.watching.Wait()
		p.removeJob()
		closeAll(p.stdout, p.stderr, p.out)
	})
}

// removeJob deletes the Job, and so the objects that it owns. It may be called more than once.
func (p *process) removeJob() {
	defer recovered.To(p.cluster.opts.Log, "remove what a Job had", nil)
	ctx, cancel := context.WithTimeout(p.cluster.cleanup, removeTime)
	defer cancel()
	if err := p.cluster.remove(ctx, jobs, p.name); err != nil {
		p.cluster.opts.Log.Warn("a Job is left, which the cluster removes after its deadline and its time to live", "job", p.name, "err", err)
	}
}

// removeSecrets deletes the Secrets, which nothing else needs once the container has started.
func (p *process) removeSecrets() {
	defer recovered.To(p.cluster.opts.Log, "remove what a Job had", nil)
	ctx, cancel := context.WithTimeout(p.cluster.cleanup, removeTime)
	defer cancel()
	for _, name := range p.secrets {
		if err := p.cluster.remove(ctx, secrets, name); err != nil {
			p.cluster.opts.Log.Warn("a Secret is left, which the cluster removes with its Job", "secret", name, "err", err)
		}
	}
}

// errPanicked is the error of a process during which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "this failed inside Orla; its log has the details")
