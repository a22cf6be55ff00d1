package kube

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// sight is the state of a Job's pod at one moment.
type sight struct {
	pod  *pod // nil if it does not exist (yet)
	gone bool // it existed, and does not any more
	err  error
}

const (
	// watchTime is the duration of one watch: a silent one may be a dead connection.
	watchTime = time.Minute
	// firstLook and lastLook are the shortest and the longest pause between two lists if watches fail or
	// end early.
	firstLook, lastLook = 200 * time.Millisecond, 2 * time.Second
)

// follow sends the state of a Job's pod to seen after every change, until ctx ends or the state
// cannot be read any more; that error is the last thing sent. If a watch ends or is refused, follow
// lists the pod again: states that were missed do not matter, since a pod only goes forward.
func (c *Cluster) follow(ctx context.Context, job string, seen chan<- sight) {
	tell := func(s sight) bool {
		select {
		case seen <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	pause, known := firstLook, ""
	for {
		began := time.Now()
		p, version, err := c.look(ctx, job)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			tell(sight{err: err})
			return
		case p == nil && known != "":
			tell(sight{gone: true})
			return
		}
		if !tell(sight{pod: p}) {
			return
		}
		if p != nil {
			known = p.Metadata.UID
		}
		if c.watch(ctx, job, version, &known, tell) {
			return
		}
		if pause = min(2*pause, lastLook); time.Since(began) > lastLook {
			pause = firstLook // the watch lasted
		}
		if !pace.Sleep(ctx, pause) {
			return
		}
	}
}

// look lists the Job's pod: the newest, if there are several. p is nil if there is none yet.
func (c *Cluster) look(ctx context.Context, job string) (p *pod, version string, err error) {
	err = c.try(ctx, taskOf("list", pods), func(ctx context.Context, client *client) error {
		found, err := client.list(ctx, pods, url.Values{"labelSelector": {labelJob + "=" + job}})
		if err != nil {
			return err
		}
		version, p = found.Metadata.Version, nil
		for _, raw := range found.Items {
			one, err := readPod(raw)
			if err != nil {
				return err
			}
			if p == nil || one.Metadata.Made.After(p.Metadata.Made) {
				p = one
			}
		}
		return nil
	})
	return p, version, err
}

// watch reports the changes after version until the watch ends. It returns true if there is nothing
// more to report. A refused watch is not an error: the caller lists the pod again.
func (c *Cluster) watch(ctx context.Context, job, version string, known *string, tell func(sight) bool) (over bool) {
	client, err := c.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return !tell(sight{err: err})
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime+attemptTime)
	defer cancel()
	err = client.Watch(ctx, kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: client.namespace, Query: url.Values{
		"labelSelector": {labelJob + "=" + job}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}}, func(change kubeapi.Event) (more bool) {
		if change.Type != "ADDED" && change.Type != "MODIFIED" && change.Type != "DELETED" {
			return false // such as 410: the caller must list the pod again
		}
		p, err := readPod(change.Object)
		if err != nil {
			over = !tell(sight{err: fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the cluster tells of a pod what is not a pod")})
			return false
		}
		if *known = p.Metadata.UID; !tell(sight{pod: p}) {
			over = true
			return false
		}
		if change.Type == "DELETED" {
			tell(sight{gone: true})
			over = true
		}
		return !over
	})
	return over && err == nil
}
