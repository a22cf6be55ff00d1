// Package kube runs processes as Jobs of a Kubernetes cluster (SPEC-TOOLS 7.4).
//
// A process is a Job of one pod with one container: its output is the pod's
// log, in which both streams are one, and its exit is the container's. It has no
// stdin, so it serves calls and never capsules.
//
//	Start:   policy ─► Job (suspended) ─► Secrets, owned by it ─► resumed ─► the pod is watched until its container has started
//	process: log ─► stdout; the container ends, or Stop deletes the Job ─► the log's rest ─► Exited ─► the Job is deleted ─► Gone
//
// Its invariant: what Start made in the cluster is deleted, or was tried to be,
// before Close returns; and what Orla cannot delete, the cluster does: the Job
// has a deadline and a time to live, and owns its Secrets and its pod.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/service/secret"
)

// Options says which cluster Jobs are made in, and by whom.
type Options struct {
	// Kubeconfig is a file. If "", those that kubectl goes by: $KUBECONFIG,
	// ~/.kube/config, and then the cluster of the pod that Orla runs in.
	Kubeconfig string
	Context    string // of that file. If "", its current one
	Namespace  string // of all that is made. Required
	// TTL is after how long the cluster removes a Job that has ended and that
	// Orla did not remove. If zero, defaultTTL.
	TTL time.Duration
	// Instance names the Orla that uses the namespace, and stays the same when it
	// is started again: its tools' folder. What an earlier one of this machine left is swept.
	Instance string
	// Secrets resolves the pull secrets of images, at each start. Required with one.
	Secrets func(secret.Ref) (secret.Value, error)
	// Log receives what cannot be told to a call. Required.
	Log *slog.Logger
}

// defaultTTL is how long a Job that has ended is kept when Orla did not remove it.
const defaultTTL = 5 * time.Minute

// Tool is what all Jobs of one tool have in common.
type Tool struct {
	Name       string
	Image      string
	PullSecret secret.Ref // zero: nothing
	Network    Network
	// Limits bound each Job, as far as a Job can be bounded: not in its number of processes.
	Limits cgroup.Limits
}

// Network is what a Job may reach.
type Network string

const (
	// NoNetwork is what a NetworkPolicy denies everything. Orla sees to it that
	// there is one, and that no other allows something; whether the cluster's
	// network obeys policies at all cannot be seen.
	NoNetwork Network = ""
	// ClusterNetwork is what the cluster gives any pod.
	ClusterNetwork Network = "cluster"
)

// Cluster makes Jobs. It is spoken to when the first one is started. Its methods
// may be called from any goroutine.
type Cluster struct {
	opts     Options
	instance string // labels what is ours, by the machine and Options.Instance

	running sync.WaitGroup // processes, and what is cleaned up after them
	swept   sync.Once
	ctx     context.Context //nolint:containedctx // what Close ends: it is no caller's
	cancel  context.CancelFunc
	// cleanup is that of what deletes Jobs and Secrets: it ends soon after Close has begun.
	cleanup    context.Context //nolint:containedctx // as above
	endCleanup context.CancelFunc

	mu     sync.Mutex // guards the fields that follow
	closed bool
	client *client // nil until it is needed
}

// New returns a Cluster, which the caller closes. It does nothing yet.
func New(opts Options) *Cluster {
	if opts.TTL == 0 {
		opts.TTL = defaultTTL
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // then instances of the same name are told apart by their pids alone
	}
	sum := sha256.Sum256([]byte(host + "\x00" + opts.Instance))
	c := &Cluster{opts: opts, instance: hex.EncodeToString(sum[:8])}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cleanup, c.endCleanup = context.WithCancel(context.Background())
	return c
}

// Launcher returns what starts the processes of a tool.
func (c *Cluster) Launcher(t Tool) launch.Launcher { return &launcher{c, t} }

// Close waits until what was started is gone, and no longer than closeTime for a
// cluster that does not delete it. It does not stop processes: their owners do.
// Start fails from now on.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel() // ends the sweep alone
	late := time.AfterFunc(closeTime, c.endCleanup)
	c.running.Wait()
	late.Stop()
	c.endCleanup()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.close()
}

// enter counts one more who uses the cluster. It fails after Close.
func (c *Cluster) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fault.New(fault.StartFailed, "Orla is stopping; no new process is started")
	}
	c.running.Add(1)
	return nil
}

// launcher starts the processes of one tool.
type launcher struct {
	cluster *Cluster
	tool    Tool
}

// Start makes a Job and waits until its container runs. The Job's deadline is
// that of ctx.
func (l *launcher) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	if err := l.check(spec); err != nil {
		return nil, err
	}
	if err := l.cluster.enter(); err != nil {
		return nil, err
	}
	p, err := l.start(ctx, spec)
	if err != nil {
		l.cluster.running.Done()
		return nil, fault.From(err)
	}
	return p, nil
}

// check refuses what a Job cannot do.
func (l *launcher) check(spec launch.Spec) error {
	refuse := func(why string) error {
		return fault.New(fault.RuntimePolicyInvalid, "isolation_mode kubernetes: %s", why)
	}
	switch {
	case spec.Input == nil:
		return refuse("a Job has no stdin to speak with; it serves tools of type cli alone")
	case len(spec.Input) > 0:
		return refuse("a Job has no stdin; give the arguments by templates in args")
	case len(spec.Files) > 0 || len(spec.Expose) > 0 || spec.Sys != nil:
		return refuse("a Job has no files of this machine; they belong into its image")
	case l.tool.Image == "":
		return refuse("the tool names no image")
	case len(spec.Argv) == 0:
		return refuse("there is no command")
	}
	return nil
}

// sizes and times that bound what a cluster can do to Orla.
const (
	// attemptTime bounds one request, and requestTime all attempts at it.
	attemptTime = 10 * time.Second
	requestTime = 20 * time.Second
	// startTime bounds a Start that nothing else bounds.
	startTime = 5 * time.Minute
	// longest is how long a Job lives whose call has no deadline.
	longest = 24 * time.Hour
	// removeTime bounds the tries to delete what a process was, and closeTime those
	// that are left when Orla stops: the cluster ends what is left then.
	removeTime = 30 * time.Second
	closeTime  = 2 * time.Second
)

// life labels what this process makes: by its pid, and by what tells it from
// others that had it.
var life = sync.OnceValue(func() string { return strconv.Itoa(os.Getpid()) + "-" + word() })

// alive reports whether the process still runs, on this machine, that calls itself so.
func alive(other string) bool {
	if other == life() {
		return true
	}
	text, _, _ := strings.Cut(other, "-")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return true // nobody that this Orla knows
	}
	return pid != os.Getpid() && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
