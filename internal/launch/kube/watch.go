package kube

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/launch/kube/podio"
)

// sight is the state of a process's pod at one moment.
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

// follow sends the state of a process's pod to seen after every change, until ctx ends or the state
// cannot be read any more; that error is the last thing sent. If a watch ends or is refused, follow
// lists the pod again: states that were missed do not matter, since a pod only goes forward.
func (c *Cluster) follow(ctx context.Context, of subject, seen chan<- sight) {
	tell := func(s sight) bool {
		select {
		case seen <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	pause, known, heard := firstLook, "", time.Now()
	for {
		began := time.Now()
		p, version, err := c.look(ctx, of)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && of.isPod() && known != "" && time.Since(heard) < podio.Patience:
			// A capsule outlives a restart of the API server, which at first refuses what it allows later.
			if pause = min(2*pause, lastLook); !pace.Sleep(ctx, pause) {
				return
			}
			continue
		case err != nil:
			tell(sight{err: err})
			return
		case p == nil && (known != "" || of.isPod()):
			tell(sight{gone: true})
			return
		}
		if !tell(sight{pod: p}) {
			return
		}
		if p != nil {
			known = p.Metadata.UID
		}
		if c.watch(ctx, of, version, &known, tell) {
			return
		}
		heard = time.Now()
		if pause = min(2*pause, lastLook); time.Since(began) > lastLook {
			pause = firstLook // the watch lasted
		}
		if !pace.Sleep(ctx, pause) {
			return
		}
	}
}

// look lists the pod: the newest, if there are several. p is nil if there is none yet, or any more.
func (c *Cluster) look(ctx context.Context, of subject) (p *pod, version string, err error) {
	err = c.try(ctx, taskOf("list", pods), func(ctx context.Context, client *client) error {
		found, err := client.list(ctx, pods, of.query())
		if err != nil {
			return err
		}
		version, p = found.Metadata.Version, nil
		for _, raw := range found.Items {
			one, err := readPod(raw)
			if err != nil {
				return err
			}
			if of.isPod() && one.Metadata.UID != of.uid {
				continue
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
func (c *Cluster) watch(ctx context.Context, of subject, version string, known *string, tell func(sight) bool) (over bool) {
	client, err := c.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return !tell(sight{err: err})
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime+attemptTime)
	defer cancel()
	query := of.query()
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(watchTime/time.Second)))
	err = client.Watch(ctx, kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: client.namespace, Query: query}, func(change kubeapi.Event) (more bool) {
		if change.Type != "ADDED" && change.Type != "MODIFIED" && change.Type != "DELETED" {
			return false // such as 410: the caller must list the pod again
		}
		p, err := readPod(change.Object)
		if err != nil {
			over = !tell(sight{err: fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the cluster tells of a pod what is not a pod")})
			return false
		}
		if of.isPod() && p.Metadata.UID != of.uid {
			return true
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
