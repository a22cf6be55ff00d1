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

// sight is what was seen of a Job's pod at one moment.
type sight struct {
	pod  *pod // nil while there is none, and when it is gone
	gone bool // there was one, and there is none any more
	err  error
}

const (
	// watchTime is how long the API is asked to keep a watch: one that says nothing
	// may be dead, without anybody having noticed.
	watchTime = time.Minute
	// firstLook and lastLook are the pauses between two lists when a watch does
	// not last, or may not be had.
	firstLook, lastLook = 200 * time.Millisecond, 2 * time.Second
)

// follow tells seen of every change of a Job's pod, until ctx ends or nothing can
// be seen any more, which is the last thing told. A watch that breaks, or is not
// to be had, is made up for by looking again: what was missed in between does not
// matter, since a pod only goes forward.
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

// look lists the Job's pod: the newest, where there are several. It may not be there yet.
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

// watch tells of changes after version for as long as a watch lasts, and reports
// whether there is nothing more to tell. That the watch itself is refused is no
// trouble: the caller looks again.
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
				return false // such as 410: it has to be looked at again
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
