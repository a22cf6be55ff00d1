package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/orla-project/orla/internal/call/recovered"
)

// forgotten is how long a Job may wait for its Secrets until nobody will make
// them any more. It has no deadline before it runs.
const forgotten = time.Hour

// Sweep removes what Orlas left in the namespace that are gone: Jobs of this
// Instance on this machine, and those of any that never got their Secrets. It
// returns at once, and does something only the first time.
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

// left reports whether nobody attends to a Job any more.
func (c *Cluster) left(job *unstructured.Unstructured) bool {
	labels := job.GetLabels()
	if labels[labelInstance] == c.instance && !alive(labels[labelLife]) {
		return true
	}
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	ours := labels[labelInstance] != "" && labels[labelLife] != "" // "orla" may be somebody else's word as well
	return ours && suspended && time.Since(job.GetCreationTimestamp().Time) > forgotten
}
