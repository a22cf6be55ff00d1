package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
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
		found, err := client.in(pods).List(ctx, metav1.ListOptions{LabelSelector: labelJob + "=" + job})
		if err != nil {
			return err
		}
		version, p = found.GetResourceVersion(), nil
		var newest time.Time
		for i := range found.Items {
			item := &found.Items[i]
			if made := item.GetCreationTimestamp().Time; p == nil || made.After(newest) {
				newest = made
				if p, err = readPod(item); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return p, version, err
}

// watch reports the changes after version until the watch ends. It returns true if there is nothing
// more to report. A refused watch is not an error: the caller lists the pod again.
func (c *Cluster) watch(ctx context.Context, job, version string, known *string, tell func(sight) bool) (over bool) {
	client, err := c.connect()
	if err != nil {
		return !tell(sight{err: err})
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime+attemptTime)
	defer cancel()
	lasts := int64(watchTime / time.Second)
	changes, err := client.in(pods).Watch(ctx, metav1.ListOptions{
		LabelSelector: labelJob + "=" + job, ResourceVersion: version, TimeoutSeconds: &lasts,
	})
	if err != nil {
		return false
	}
	defer changes.Stop()
	for {
		select {
		case change, open := <-changes.ResultChan():
			if !open {
				return false
			}
			u, isPod := change.Object.(*unstructured.Unstructured)
			if change.Type == watch.Error || change.Type == watch.Bookmark || !isPod {
				return false // such as 410: the caller must list the pod again
			}
			p, err := readPod(u)
			if err != nil {
				return !tell(sight{err: fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the cluster tells of a pod what is no pod")})
			}
			if *known = p.Metadata.UID; !tell(sight{pod: p}) {
				return true
			}
			if change.Type == watch.Deleted {
				tell(sight{gone: true})
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
