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

// process is one Job. Its methods may be called from any goroutine.
type process struct {
	cluster        *Cluster
	name           string
	limits         cgroup.Limits
	stdout, stderr *os.File        // the caller's ends
	out            *os.File        // the log goes here; the copier's until ended, then attend's
	ctx            context.Context //nolint:containedctx // of what watches the Job and reads its log; Stop or attend ends it
	cancel         context.CancelFunc

	// Of Start, and then of attend.
	secrets  []string // names of those that are still there
	last     *pod     // the last that was seen; not nil after begin
	pod      string   // its name; set by begin, like applied
	applied  cgroup.Limits
	sights   chan sight
	watching sync.WaitGroup
	logging  sync.WaitGroup
	unread   *fault.Error // why the log is not whole; the copier's until it has returned
	removing sync.WaitGroup

	stopOnce sync.Once
	stop     chan struct{} // closed when the Job is to be deleted
	ended    chan struct{} // closed when the container has ended: the log gets no longer
	exit     launch.Exit   // set before exited is closed
	exited   chan struct{}
	gone     chan struct{}
}

// Pid is 0: nothing of it is on this machine.
func (p *process) Pid() int { return 0 }

// Streams are the pipes: no stdin, and stdout with the whole log.
func (p *process) Streams() (stdin, stdout, stderr *os.File) { return nil, p.stdout, p.stderr }

// Exited is closed when the container has ended and its log is read. After Stop it
// is closed at once: the call is answered, and Gone tells of the rest.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the Job is deleted, or that was tried for long enough.
func (p *process) Gone() <-chan struct{} { return p.gone }

// Exit tells how the container ended.
func (p *process) Exit() launch.Exit { return p.exit }

// Applied tells what the pod is bounded by, as the cluster has it. The number of
// its processes is the node's affair.
func (p *process) Applied() launch.Applied { return launch.Applied{Tree: p.applied} }

// Finish is Stop: there is no input whose end the process could see.
func (p *process) Finish(time.Duration) { p.Stop() }

// Stop deletes the Job: its node ends the container by SIGTERM, the grace and SIGKILL.
// Nobody waits for that. What the log had until now is what it has.
func (p *process) Stop() {
	p.stopOnce.Do(func() {
		close(p.stop)
		p.cancel()
	})
}

// Kill is Stop: only its node could end the container without grace.
func (p *process) Kill() { p.Stop() }

// attend owns the process from its start to its end.
func (p *process) attend() {
	defer p.cluster.running.Done()
	p.logging.Go(p.copyLog)
	p.removing.Go(p.removeSecrets) // the container has them
	p.exit = p.awaitEnd()
	close(p.ended)
	p.logging.Wait()
	if p.unread != nil && p.exit.Err == nil && !launch.IsClosed(p.stop) {
		p.exit = launch.Exit{Code: -1, Err: p.unread} // an output that lacks something is none
	}
	_ = p.out.Close() // a pipe of ours
	close(p.exited)
	p.cancel()
	p.watching.Wait()
	p.removing.Go(p.removeJob)
	p.removing.Wait()
	close(p.gone)
}

// awaitEnd waits until the container has ended, or is not waited for any more.
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

// judge reports whether it is over, and how.
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
		return launch.Exit{Code: -1, Err: p.deleted(p.ctx)}, true // it did not end by itself
	}
	return exit, over
}

// deleted says why somebody deleted the pod, who was not Orla. It takes no longer
// than ctx.
func (p *process) deleted(ctx context.Context) *fault.Error {
	ctx, cancel := context.WithTimeout(ctx, hesitation)
	defer cancel()
	for { // the Job follows its pod in a moment
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

// removeJob deletes the Job, and with it what it owns. It is called for each
// reason that there is: a further time costs a request.
func (p *process) removeJob() {
	defer recovered.To(p.cluster.opts.Log, "remove what a Job had", nil)
	ctx, cancel := context.WithTimeout(p.cluster.cleanup, removeTime)
	defer cancel()
	if err := p.cluster.remove(ctx, jobs, p.name); err != nil {
		p.cluster.opts.Log.Warn("a Job is left, which the cluster removes after its deadline and its time to live", "job", p.name, "err", err)
	}
}

// removeSecrets deletes what the container has got, and nobody else needs.
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

// errPanicked is why something ended over which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "this failed inside Orla; its log has the details")
