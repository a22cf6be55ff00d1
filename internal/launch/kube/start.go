package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/launch"
)

// start creates the Job or the Pod of a process, and waits until its container runs. If that fails, the objects
// are removed in the background; Close waits for that, the caller does not.
func (l *launcher) start(ctx context.Context, spec launch.Spec) (*process, error) {
	c := l.cluster
	plan, err := l.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	if plan.tool.Network == NoNetwork {
		if err := c.denyNetwork(ctx, plan); err != nil {
			return nil, err
		}
	}
	p, err := c.newProcess(plan)
	if err != nil {
		return nil, err
	}
	if err = c.create(ctx, plan, p); err == nil {
		err = p.begin(ctx)
	}
	if err != nil {
		p.abandon() //nolint:contextcheck // ctx may be done
		return nil, err
	}
	go p.attend() // ctx bounds only the start; attend does what ends enter
	return p, nil
}

// plan collects what a Job or a Pod needs.
func (l *launcher) plan(ctx context.Context, spec launch.Spec) (*plan, error) {
	p := &plan{tool: l.tool, spec: spec, deadline: longest}
	if spec.Input != nil {
		p.name = nameFor(l.tool.Name)
	} else {
		p.name, p.start = l.cluster.podName(l.tool.Name), word()
		if l.tool.Generation != nil {
			p.generation = l.tool.Generation()
		}
	}
	if by, ok := ctx.Deadline(); ok {
		p.deadline = time.Until(by)
	}
	if l.tool.PullSecret.IsZero() {
		return p, nil
	}
	v, err := l.cluster.opts.Secrets(l.tool.PullSecret)
	if err != nil {
		return nil, err
	}
	var ok bool
	if p.pull, ok = dockerConfig(l.tool.Image, v); !ok {
		return nil, fault.New(fault.SecretResolutionFailed,
			"the pull secret %s is neither USER:PASSWORD nor a Docker configuration with auths", l.tool.PullSecret)
	}
	return p, nil
}

// create creates the Job or the Pod, and then its Secrets, which it owns. No node takes it before they are there.
func (c *Cluster) create(ctx context.Context, plan *plan, p *process) (err error) {
	var uid string
	if plan.capsule() {
		uid, err = c.createPod(ctx, plan)
		p.uid = uid
	} else {
		uid, err = c.make(ctx, jobs, plan.name, c.job(plan))
	}
	if err != nil {
		return err
	}
	if !plan.secretive() {
		return nil
	}
	for _, s := range c.secretsOf(plan, uid) {
		if _, err := c.make(ctx, secrets, s.name, s.object); err != nil {
			return err
		}
		p.secrets = append(p.secrets, s.name)
	}
	if plan.capsule() {
		return c.patch(ctx, pods, plan.name, object{"schedulingGates": nil})
	}
	return c.patch(ctx, jobs, plan.name, object{"suspend": false})
}

// patch changes the spec of an object.
func (c *Cluster) patch(ctx context.Context, kind kubeapi.Resource, name string, spec object) error {
	return c.try(ctx, taskOf("patch", kind), func(ctx context.Context, client *client) error {
		return client.Do(ctx, kubeapi.Request{Method: http.MethodPatch, Of: kind, Namespace: client.namespace, Name: name, Body: object{"spec": spec}}, nil)
	})
}

// make creates an object and returns its uid. It is not an error if the object exists: names are
// unique, so an earlier request has created it and its answer was lost.
func (c *Cluster) make(ctx context.Context, kind kubeapi.Resource, name string, o object) (uid string, err error) {
	var made struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err = c.try(ctx, taskOf("create", kind), func(ctx context.Context, client *client) error {
		err := client.Do(ctx, kubeapi.Request{Method: http.MethodPost, Of: kind, Namespace: client.namespace, Body: o}, &made)
		if kubeapi.Exists(err) && kind == jobs {
			return client.get(ctx, kind, name, &made)
		}
		if kubeapi.Exists(err) {
			return nil
		}
		return err
	})
	return made.Metadata.UID, err
}

// remove deletes an object. It is not an error if it does not exist.
func (c *Cluster) remove(ctx context.Context, kind kubeapi.Resource, name string) error {
	return c.delete(ctx, removal{kind: kind, name: name})
}

// removal is what is deleted.
type removal struct {
	kind  kubeapi.Resource
	name  string
	uid   string        // "": whatever has the name
	grace time.Duration // 0: that of the object
}

func (c *Cluster) delete(ctx context.Context, r removal) error {
	return c.try(ctx, taskOf("delete", r.kind), func(ctx context.Context, client *client) error {
		// The pod gets its grace, and the Secrets are deleted too.
		after := object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
		if r.uid != "" {
			after["preconditions"] = object{"uid": r.uid}
		}
		if r.grace != 0 {
			after["gracePeriodSeconds"] = seconds(r.grace)
		}
		err := client.Do(ctx, kubeapi.Request{Method: http.MethodDelete, Of: r.kind, Namespace: client.namespace, Name: r.name, Body: after}, nil)
		if kubeapi.IsNotFound(err) || r.uid != "" && kubeapi.IsConflict(err) { // another one has the name
			return nil
		}
		return err
	})
}

const (
	// hesitation bounds the check why a Job has no pod.
	hesitation = 3 * time.Second
	// firstDoubt is how long a Job may have no pod before Orla checks why. lastDoubt is the longest
	// pause between two checks.
	firstDoubt, lastDoubt = 250 * time.Millisecond, time.Second
)

// begin waits until the container has started.
func (p *process) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime,
		fault.New(fault.Timeout, "isolation_mode kubernetes: the container has not started within %s", startTime))
	defer cancel()
	p.watching.Go(func() {
		defer recovered.To(p.cluster.opts.Log, "follow a Job's pod", func(any) {
			select {
			case p.sights <- sight{err: errPanicked}:
			case <-p.ctx.Done():
			}
		})
		p.cluster.follow(p.ctx, p.subject, p.sights)
	})
	why := "its pod is not there yet"
	pause := firstDoubt
	look := time.NewTimer(pause)
	defer look.Stop()
	for seen := false; ; {
		select {
		case s := <-p.sights:
			switch {
			case s.err != nil:
				return s.err
			case s.gone:
				err := error(p.deleted(ctx))
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return p.late(err, why)
			case s.pod == nil:
				continue
			}
			if what := s.pod.loosened(p.limits); what != "" {
				return fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: the cluster changed the pod that it was given: %s; "+
					"see which webhook or policy of namespace %s does", what, p.cluster.opts.Namespace)
			}
			if err := s.pod.stuck(); err != nil {
				return err
			}
			if s.pod.begun() {
				p.last, p.pod, p.node, p.applied = s.pod, s.pod.Metadata.Name, s.pod.Spec.NodeName, s.pod.limits()
				return nil
			}
			seen = true
			if text := s.pod.awaited(); text != "" {
				why = text
			}
		case <-look.C:
			if seen || p.isPod() {
				continue
			}
			if err := p.cluster.failed(ctx, p.name); err != nil {
				return err
			}
			refused, err := p.cluster.unmade(ctx, p.name)
			if err != nil {
				return err
			}
			if refused != "" {
				why = refused
			}
			pause = min(2*pause, lastDoubt)
			look.Reset(pause)
		case <-ctx.Done():
			return p.late(context.Cause(ctx), why)
		}
	}
}

// failed returns how a Job failed without a pod that says so; nil if it did not.
func (c *Cluster) failed(ctx context.Context, job string) error {
	var failure error
	err := c.try(ctx, taskOf("get", jobs), func(ctx context.Context, client *client) error {
		var found struct {
			Status struct {
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		}
		if err := client.get(ctx, jobs, job, &found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			switch {
			case c.Type != "Failed" || c.Status != "True":
			case c.Reason == "DeadlineExceeded":
				failure = fault.New(fault.Timeout, "isolation_mode kubernetes: the cluster ended the Job at its deadline")
			default:
				failure = lost("the Job's pod is gone, and it was not Orla who deleted it (%s): %s", c.Reason, clip(c.Message))
			}
		}
		return nil
	})
	if kubeapi.IsNotFound(errors.Unwrap(err)) {
		return lost("the Job was deleted, and not by Orla")
	}
	if failure != nil {
		return failure
	}
	return err
}

// late says what a process was waiting for when its time was over.
func (p *process) late(cause error, why string) error {
	f := fault.From(cause)
	if f.Code != fault.Timeout {
		return f
	}
	told := *f
	told.Reason = fmt.Sprintf("%s; the %s has not started: %s", f.Reason, p.noun(), why)
	return &told
}

// finalRefusals is how many times the Job controller must have been refused a pod before Orla gives
// up. The controller tries again after a second. The first refusal may be temporary, as when two
// pods are counted against one quota at once.
const finalRefusals = 2

// unmade says why a Job has no pod, by the cluster's events; "" if they cannot be read now. An error
// means that the Job will not get one: admission (a LimitRange, a quota, PodSecurity, a webhook)
// refuses it.
func (c *Cluster) unmade(ctx context.Context, job string) (why string, err error) {
	client, err := c.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return "", nil // events only explain; begin notices the failure
	}
	ctx, cancel := context.WithTimeout(ctx, hesitation)
	defer cancel()
	found, err := client.list(ctx, events, url.Values{"fieldSelector": {"involvedObject.kind=Job,involvedObject.name=" + job}, "limit": {"50"}})
	if err != nil {
		return "", nil // see above
	}
	why = "its pod is not there yet; kubectl describe job tells more"
	refusals, said := int64(0), ""
	for _, raw := range found.Items {
		var event struct {
			Type    string `json:"type"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
			Count   int64  `json:"count"`
		}
		if json.Unmarshal(raw, &event) != nil || event.Type != "Warning" {
			continue
		}
		why = fmt.Sprintf("%s: %s", event.Reason, clip(event.Message))
		if event.Reason == "FailedCreate" {
			refusals, said = refusals+max(1, event.Count), clip(event.Message)
		}
	}
	if refusals < finalRefusals {
		return why, nil
	}
	f := fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: the cluster refuses the Job's pod: %s; see the LimitRanges, quotas and policies of namespace %s", said, c.opts.Namespace)
	if overQuota(said) {
		f.Retry = new(true) // once other pods have ended
	}
	return why, f
}

// newProcess makes the process for a plan.
func (c *Cluster) newProcess(plan *plan) (*process, error) {
	p := &process{
		cluster: c,
		subject: subject{name: plan.name},
		limits:  plan.tool.Limits,
		grace:   cmp.Or(plan.spec.Grace, launch.DefaultGrace),
		broken:  make(chan *fault.Error, 1),
		kill:    make(chan struct{}),
		sights:  make(chan sight),
		stop:    make(chan struct{}),
		ended:   make(chan struct{}),
		exited:  make(chan struct{}),
		gone:    make(chan struct{}),
	}
	var errs [3]error
	p.stdout, p.out, errs[0] = os.Pipe()
	p.stderr, p.err, errs[1] = os.Pipe()
	p.carry = p.copyLog
	if plan.capsule() {
		p.carry, p.kind = p.carryStreams, pods
		p.in, p.stdin, errs[2] = os.Pipe()
	}
	if err := errors.Join(errs[:]...); err != nil {
		closeAll(p.pipes()...)
		return nil, fault.Wrap(fault.StartFailed, err, "no file descriptor is left; raise the limit (ulimit -n) or lower max_concurrent_calls")
	}
	if !plan.capsule() {
		_ = p.err.Close() // the log is both streams
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}
