// Package kube runs processes as Jobs of a Kubernetes cluster (SPEC-TOOLS 7.4).
//
// A process is a Job of one pod with one container. Its output is the pod's log, which mixes stdout
// and stderr, and its exit code is the container's. It has no stdin; so Jobs are only for single
// calls, not for capsules.
//
//	Start:   policy ─► Job (suspended) ─► Secrets, owned by it ─► resumed ─► the pod is watched until its container has started
//	process: log ─► stdout; the container ends, or Stop deletes the Job ─► the log's rest ─► Exited ─► the Job is deleted ─► Gone
//
// Its invariant: before Close returns, Orla has deleted what Start created in the cluster, or has
// tried to. The cluster deletes what Orla cannot: the Job has a deadline and a time to live, and
// owns its Secrets and its pod.
package kube

import (
	"cmp"
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

// Options says in which cluster and namespace Jobs are created, and how to connect to it.
type Options struct {
	// Kubeconfig is a file. If "", the same ones as for kubectl are used: $KUBECONFIG, ~/.kube/config,
	// and then the cluster of the pod that Orla runs in.
	Kubeconfig string
	Context    string // of that file. If "", its current one
	Namespace  string // of all objects. Required
	// TTL is the time after which the cluster removes an ended Job that Orla did not remove. If zero,
	// defaultTTL.
	TTL time.Duration
	// Instance identifies the Orla that uses the namespace, across restarts: it is the tools folder.
	// Jobs that an earlier Orla of this instance and machine left are swept.
	Instance string
	// Group identifies the Orlas, on any machine, among which a capsule has one process. If "", that is this one alone,
	// across restarts.
	Group string
	// Secrets resolves the pull secrets of images, at each start. Required if a tool has one.
	Secrets func(secret.Ref) (secret.Value, error)
	// Log receives the failures that no call can report. Required.
	Log *slog.Logger
}

// defaultTTL is how long an ended Job is kept if Orla did not remove it.
const defaultTTL = 5 * time.Minute

// Tool has what all Jobs of one tool have in common.
type Tool struct {
	Name       string
	Image      string
	PullSecret secret.Ref // zero for none
	Network    Network
	// Limits are the limits of each Job. A Job has none for the number of processes.
	Limits cgroup.Limits
	// Generation, if not nil, is asked at each start of a capsule's process: the process gets it as ORLA_GENERATION, and a
	// start of a lower one than that of the Pod that is there fails.
	Generation func() int64
}

// Network is the network access of a Job.
type Network string

const (
	// NoNetwork denies all traffic by a NetworkPolicy. Orla makes sure that the policy exists and that
	// no other policy allows traffic. It cannot check that the cluster's network enforces policies at
	// all.
	NoNetwork Network = ""
	// ClusterNetwork is the same network access as that of any pod.
	ClusterNetwork Network = "cluster"
)

// Cluster creates Jobs. It connects when the first one is started. Its methods may be called from
// any goroutine.
type Cluster struct {
	opts     Options
	instance string // labels the objects of this machine and Options.Instance

	running sync.WaitGroup // processes, and their cleanup
	swept   sync.Once
	ctx     context.Context //nolint:containedctx // cancelled by Close; it belongs to no call
	cancel  context.CancelFunc
	// cleanup is for the deletion of Jobs and Secrets. It ends soon after Close has begun.
	cleanup    context.Context //nolint:containedctx // see above
	endCleanup context.CancelFunc

	mu     sync.Mutex // guards the field that follows, and running.Add against Close
	client *client    // nil until the first use
}

// New returns a Cluster. It does not connect. The caller must Close the Cluster.
func New(opts Options) *Cluster {
	opts.TTL = cmp.Or(opts.TTL, defaultTTL)
	host, err := os.Hostname()
	if err != nil {
		host = "" // then instances of the same name are distinguished only by their pids
	}
	sum := sha256.Sum256([]byte(host + "\x00" + opts.Instance))
	c := &Cluster{opts: opts, instance: hex.EncodeToString(sum[:8])}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cleanup, c.endCleanup = context.WithCancel(context.Background())
	return c
}

// Launcher returns a Launcher for the processes of a tool.
func (c *Cluster) Launcher(t Tool) launch.Launcher { return &launcher{c, t} }

// Close waits until everything that was started is gone, for at most closeTime. It does not stop
// processes: their owners do. Start fails from now on.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.cancel() // refuses new processes, and ends the sweep
	c.mu.Unlock()
	late := time.AfterFunc(closeTime, c.endCleanup)
	c.running.Wait()
	late.Stop()
	c.endCleanup()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.Close()
	}
}

// enter adds a user of the cluster, for whom Close waits. It fails after Close.
func (c *Cluster) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
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

// Start creates a Job, or the Pod of a process with a stdin, and waits until its container runs. The Job gets the
// deadline of ctx.
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

// check refuses what a Job or a Pod cannot do.
func (l *launcher) check(spec launch.Spec) error {
	refuse := func(why string) error {
		return fault.New(fault.RuntimePolicyInvalid, "isolation_mode kubernetes: %s", why)
	}
	switch {
	case len(spec.Input) > 0:
		return refuse("a Job has no stdin; give the arguments by templates in args")
	case len(spec.Files) > 0 || len(spec.Expose) > 0 || spec.Sys != nil:
		return refuse("a pod has no files of this machine; they belong into its image")
	case l.tool.Image == "":
		return refuse("the tool names no image")
	case len(spec.Argv) == 0:
		return refuse("there is no command")
	}
	return nil
}

// Limits of the size and the time of requests.
const (
	// attemptTime bounds one request, requestTime all attempts of it.
	attemptTime = 10 * time.Second
	requestTime = 20 * time.Second
	// startTime bounds a Start whose context has no deadline.
	startTime = 5 * time.Minute
	// longest is the deadline of a Job whose call has none.
	longest = 24 * time.Hour
	// removeTime bounds the deletion of a process's objects. closeTime bounds all deletions when Orla
	// stops: the cluster deletes the rest.
	removeTime = 30 * time.Second
	closeTime  = 2 * time.Second
)

// life labels the objects of this Orla process: by its pid, and a random word that distinguishes it
// from others with the same pid.
var life = sync.OnceValue(func() string { return strconv.Itoa(os.Getpid()) + "-" + word() })

// alive reports whether the Orla process with a life label still runs on this machine.
func alive(other string) bool {
	if other == life() {
		return true
	}
	text, _, _ := strings.Cut(other, "-")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return true // a process that this Orla does not know
	}
	return pid != os.Getpid() && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
