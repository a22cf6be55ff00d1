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

// process is a Job, or the Pod of a capsule. Its methods may be called from any goroutine.
type process struct {
	subject

	cluster *Cluster
	limits  cgroup.Limits
	grace   time.Duration
	ends
	ctx    context.Context //nolint:containedctx // for watching the pod and reading its log; cancelled by attend, and by Stop of a Job
	cancel context.CancelFunc

	// Owned by Start, and then by attend.
	secrets  []string // names of those that are not deleted yet
	last     *pod     // the newest state; not nil after begin
	pod      string   // the pod's name; set by begin, as applied and node are
	node     string
	applied  cgroup.Limits
	sights   chan sight
	watching sync.WaitGroup
	carrying sync.WaitGroup
	carry    func()       // carries the streams, until ended is closed and all was read
	unread   *fault.Error // why the log is incomplete; owned by copyLog until it returns
	removing sync.WaitGroup

	stopOnce, killOnce sync.Once
	stop               chan struct{}     // closed when the process is to end
	kill               chan struct{}     // closed when that is to happen without grace
	broken             chan *fault.Error // receives why the streams cannot be carried any more
	ended              chan struct{}     // closed when the container has ended: the log does not grow any more
	exit               launch.Exit       // set before exited is closed
	exited             chan struct{}
	gone               chan struct{}
}

// ends are the pipes of a process.
type ends struct {
	stdin, stdout, stderr *os.File // for the caller; stdin is nil for a Job
	in                    *os.File // what the caller writes to stdin; nil for a Job
	out, err              *os.File // what the caller reads; owned by carry until ended is closed, then by attend
}

func (e *ends) pipes() []*os.File {
	return []*os.File{e.stdin, e.stdout, e.stderr, e.in, e.out, e.err}
}

// Pid is 0: the process is not on this machine.
func (p *process) Pid() int { return 0 }

// Place says where the process is.
func (p *process) Place() string { return "Pod " + p.pod + " on node " + p.node }

// Streams returns the streams of a Pod. Of a Job it returns no stdin, and the whole log as stdout.
func (p *process) Streams() (stdin, stdout, stderr *os.File) { return p.stdin, p.stdout, p.stderr }

// Exited is closed when the container has ended and its output is read. After Stop of a Job it is closed at
// once, so that the call can return; Gone follows when the Job is deleted.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when the Job is deleted, or the Pod is gone, or the time for that is over.
func (p *process) Gone() <-chan struct{} { return p.gone }

// Exit returns how the container ended.
func (p *process) Exit() launch.Exit { return p.exit }

// Applied returns the limits of the pod in the cluster. The node decides about the number of processes.
func (p *process) Applied() launch.Applied { return launch.Applied{Tree: p.applied} }

// Finish is Stop: the container keeps its stdin open, so that a connection that broke can be made again.
func (p *process) Finish(time.Duration) { p.Stop() }

// Stop deletes the Job or the Pod: its node ends the container by SIGTERM, the grace and SIGKILL. Stop does not
// wait for that. Of a Job, the log that was read until now is the output.
func (p *process) Stop() {
	p.stopOnce.Do(func() {
		close(p.stop)
		if !p.isPod() {
			p.cancel()
		}
	})
}

// Kill shortens the grace of a Pod as far as its node still confirms the end. A Job gets its grace.
func (p *process) Kill() {
	p.killOnce.Do(func() { close(p.kill) })
	p.Stop()
}

// attend waits for the end of the process, and cleans up.
func (p *process) attend() {
	defer p.cluster.running.Done()
	p.carrying.Go(func() {
		defer recovered.To(p.cluster.opts.Log, "carry the streams of a process", func(any) { p.broken <- errPanicked })
		p.carry()
	})
	p.removing.Go(p.removeSecrets) // the container has read them
	p.exit = p.awaitEnd()
	close(p.ended)
	p.carrying.Wait()
	if p.unread != nil && p.exit.Err == nil && !launch.IsClosed(p.stop) {
		p.exit = launch.Exit{Code: -1, Err: p.unread} // an incomplete output is not an output
	}
	closeAll(p.in, p.out, p.err) // closing a pipe loses nothing
	close(p.exited)
	p.cancel()
	p.watching.Wait()
	p.removing.Go(p.removeAll)
	p.removing.Wait()
	close(p.gone)
}

// awaitEnd waits until the container has ended, or Stop of a Job is called.
func (p *process) awaitEnd() (exit launch.Exit) {
	defer recovered.To(p.cluster.opts.Log, "wait for a Job or a Pod", func(any) { exit = launch.Exit{Code: -1, Err: errPanicked} })
	if exit, over := p.judge(sight{pod: p.last}); over {
		return exit
	}
	stop := p.stop
	var late <-chan time.Time
	for {
		select {
		case s := <-p.sights:
			if exit, over := p.judge(s); over {
				return exit
			}
		case err := <-p.broken:
			if stop != nil {
				return launch.Exit{Code: -1, Err: err}
			}
		case <-stop:
			if !p.isPod() {
				return launch.Exit{Code: -1, Err: lost("the Job was deleted before its container had ended")}
			}
			stop, late = nil, time.After(p.grace+removeTime)
			p.removing.Go(p.removeAll) // its end is seen as any other
		case <-late:
			return launch.Exit{Code: -1, Err: lost("the Pod was deleted, and node %s does not say that its container has ended", p.node)}
		}
	}
}

// judge reports whether the process has ended, and how.
func (p *process) judge(s sight) (launch.Exit, bool) {
	switch {
	case s.err != nil:
		return launch.Exit{Code: -1, Err: fault.From(s.err)}, true
	case s.gone && launch.IsClosed(p.stop):
		return launch.Exit{Code: -1}, true
	case s.gone:
		return launch.Exit{Code: -1, Err: p.deleted(p.ctx)}, true
	case s.pod == nil:
		return launch.Exit{}, false
	}
	p.last = s.pod
	if s.pod.abandoned() && !launch.IsClosed(p.stop) {
		return launch.Exit{Code: -1, Err: lost("node %s does not answer, and the cluster has given up the Pod", p.node)}, true
	}
	exit, over := s.pod.exit()
	if over && exit.Err == nil && !launch.IsClosed(p.stop) && s.pod.Metadata.DeletionTimestamp != "" {
		return launch.Exit{Code: -1, Err: p.deleted(p.ctx)}, true // somebody deleted the pod
	}
	return exit, over
}

// deleted says why the pod was deleted, other than by Orla. It takes until ctx ends at most.
func (p *process) deleted(ctx context.Context) *fault.Error {
	if p.isPod() {
		if p.last == nil {
			return lost("the Pod was deleted, and not by Orla")
		}
		return lost("the Pod was deleted while it ran, and not by Orla%s", p.last.disrupted())
	}
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

// abandon removes a Job or a Pod that did not start.
func (p *process) abandon() {
	p.cancel()
	p.cluster.running.Go(func() {
		p.watching.Wait()
		p.removeAll()
		closeAll(p.pipes()...)
	})
}

// removeAll deletes the Job or the Pod, and so the objects that it owns, and waits until a Pod is gone. It may be called
// more than once.
func (p *process) removeAll() {
	defer recovered.To(p.cluster.opts.Log, "remove what a process had", nil)
	patience := removeTime
	if p.isPod() {
		patience += p.grace
	}
	ctx, cancel := context.WithTimeout(p.cluster.cleanup, patience)
	defer cancel()
	if !p.isPod() {
		if err := p.cluster.remove(ctx, jobs, p.name); err != nil {
			p.cluster.opts.Log.Warn("a Job is left, which the cluster removes after its deadline and its time to live", "job", p.name, "err", err)
		}
		return
	}
	if p.uid == "" {
		return // it was not made
	}
	r := removal{kind: pods, name: p.name, uid: p.uid}
	err := p.cluster.delete(ctx, r)
	for err != nil && pace.Sleep(ctx, lastLook) { // as while the API server restarts
		err = p.cluster.delete(ctx, r)
	}
	if err == nil && !p.awaitGone(ctx, r) {
		err = fault.New(fault.Timeout, "its node does not say that the container has ended")
	}
	if err != nil {
		p.cluster.opts.Log.Warn("a Pod is left; the next start of its capsule waits until it is gone", "pod", p.name, "node", p.node, "err", err)
	}
}

// awaitGone waits until the Pod is gone. Kill shortens its grace, to the shortest one that a node confirms.
func (p *process) awaitGone(ctx context.Context, r removal) bool {
	until, cancel := context.WithCancel(ctx)
	var hurry sync.WaitGroup
	defer hurry.Wait()
	defer cancel()
	hurry.Go(func() {
		defer recovered.To(p.cluster.opts.Log, "hurry the end of a Pod", nil)
		select {
		case <-p.kill:
			r.grace = time.Second
			if err := p.cluster.delete(until, r); err != nil && until.Err() == nil {
				p.cluster.opts.Log.Warn("the grace period of a Pod could not be shortened", "pod", p.name, "err", err)
			}
		case <-until.Done():
		}
	})
	return p.cluster.awaitGone(ctx, r.name, r.uid)
}

// removeSecrets deletes the Secrets, which nothing else needs once the container has started.
func (p *process) removeSecrets() {
	defer recovered.To(p.cluster.opts.Log, "remove what a process had", nil)
	ctx, cancel := context.WithTimeout(p.cluster.cleanup, removeTime)
	defer cancel()
	for _, name := range p.secrets {
		if err := p.cluster.remove(ctx, secrets, name); err != nil {
			p.cluster.opts.Log.Warn("a Secret is left, which the cluster removes with its Job or Pod", "secret", name, "err", err)
		}
	}
}

// errPanicked is the error of a process during which Orla panicked.
var errPanicked = fault.New(fault.ExecutionFailed, "this failed inside Orla; its log has the details")
