package kube

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// forgotten is how long a Job may wait for its Secrets before it is taken to be abandoned. It has no
// deadline while it is suspended.
const forgotten = time.Hour

// Sweep removes the Jobs and the Pods of capsules that ended Orlas of this Instance on this machine left, and Jobs of any
// Orla that never got their Secrets. It runs once, in the background; further calls do nothing.
func (c *Cluster) Sweep() {
	c.swept.Do(func() {
		if c.enter() != nil {
			return
		}
		go func() { // Close waits for it
			defer c.running.Done()
			defer recovered.To(c.opts.Log, "look for what an earlier Orla left", nil)
			err := c.sweep(c.ctx, jobs, labelManaged+"="+managedBy)
			if err == nil {
				err = c.sweep(c.ctx, pods, labelManaged+"="+managedBy+","+labelCapsule+"=true")
			}
			if err != nil && c.ctx.Err() == nil {
				c.opts.Log.Warn("look for Jobs and Pods that an earlier Orla left", "namespace", c.opts.Namespace, "err", err)
			}
		}()
	})
}

// sweep removes what is left of one kind.
func (c *Cluster) sweep(ctx context.Context, kind kubeapi.Resource, selector string) error {
	const page = 200
	next := ""
	for {
		var found listing
		err := c.try(ctx, taskOf("list", kind), func(ctx context.Context, client *client) (err error) {
			query := url.Values{"labelSelector": {selector}, "limit": {strconv.Itoa(page)}}
			if next != "" {
				query.Set("continue", next)
			}
			found, err = client.list(ctx, kind, query)
			return err
		})
		if err != nil {
			return err
		}
		for _, raw := range found.Items {
			var left remnant
			if json.Unmarshal(raw, &left) != nil || !c.left(&left) {
				continue // what cannot be read is not Orla's
			}
			if err := c.delete(ctx, removal{kind: kind, name: left.Metadata.Name, uid: left.Metadata.UID}); err != nil {
				return err
			}
			if kind == pods {
				c.opts.Log.Info("removed a Pod that an earlier Orla left", "pod", left.Metadata.Name)
			} else {
				c.opts.Log.Info("removed a Job that an earlier Orla left", "job", left.Metadata.Name)
			}
		}
		if next = found.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// remnant has the fields of a Job or a Pod that say whose it is.
type remnant struct {
	Metadata struct {
		Name   string            `json:"name"`
		UID    string            `json:"uid"`
		Labels map[string]string `json:"labels"`
		Made   time.Time         `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Suspend bool `json:"suspend"`
	} `json:"spec"`
}

// left reports whether the Orla of a Job or a Pod has ended.
func (c *Cluster) left(of *remnant) bool {
	labels := of.Metadata.Labels
	if labels[labelInstance] == c.instance && !alive(labels[labelLife]) {
		return true
	}
	ours := labels[labelInstance] != "" && labels[labelLife] != "" // "orla" may be somebody else's word as well
	return ours && of.Spec.Suspend && time.Since(of.Metadata.Made) > forgotten
}
