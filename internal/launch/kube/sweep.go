package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/orla-project/orla/internal/call/recovered"
)

// forgotten is how long a Job may wait for its Secrets before it is taken to be abandoned. It has no
// deadline while it is suspended.
const forgotten = time.Hour

// Sweep removes the Jobs that ended Orlas of this Instance on this machine left, and those of any
// Orla that never got their Secrets. It runs once, in the background; further calls do nothing.
func (c *Cluster) Sweep() {
	c.swept.Do(func() {
		if c.enter() != nil {
			return
		}
		go func() { // Close waits for it
			defer c.running.Done()
			defer recovered.To(c.opts.Log, "look for Jobs that an earlier Orla left", nil)
			if err := c.sweep(c.ctx); err != nil && c.ctx.Err() == nil {
				c.opts.Log.Warn("look for Jobs that an earlier Orla left", "namespace", c.opts.Namespace, "err", err)
			}
		}()
	})
}

func (c *Cluster) sweep(ctx context.Context) error {
	const page = 200
	next := ""
	for {
		var found *unstructured.UnstructuredList
		err := c.try(ctx, taskOf("list", jobs), func(ctx context.Context, client *client) (err error) {
			found, err = client.in(jobs).List(ctx, metav1.ListOptions{LabelSelector: labelManaged + "=" + managedBy, Limit: page, Continue: next})
			return err
		})
		if err != nil {
			return err
		}
		for i := range found.Items {
			if name := found.Items[i].GetName(); c.left(&found.Items[i]) {
				if err := c.remove(ctx, jobs, name); err != nil {
					return err
				}
				c.opts.Log.Info("removed a Job that an earlier Orla left", "job", name)
			}
		}
		if next = found.GetContinue(); next == "" {
			return nil
		}
	}
}

// left reports whether a Job's Orla has ended.
func (c *Cluster) left(job *unstructured.Unstructured) bool {
	labels := job.GetLabels()
	if labels[labelInstance] == c.instance && !alive(labels[labelLife]) {
		return true
	}
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	ours := labels[labelInstance] != "" && labels[labelLife] != "" // "orla" may be somebody else's word as well
	return ours && suspended && time.Since(job.GetCreationTimestamp().Time) > forgotten
}
