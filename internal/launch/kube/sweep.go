package kube

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

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
		var found listing
		err := c.try(ctx, taskOf("list", jobs), func(ctx context.Context, client *client) (err error) {
			query := url.Values{"labelSelector": {labelManaged + "=" + managedBy}, "limit": {strconv.Itoa(page)}}
			if next != "" {
				query.Set("continue", next)
			}
			found, err = client.list(ctx, jobs, query)
			return err
		})
		if err != nil {
			return err
		}
		for _, raw := range found.Items {
			var job remnant
			if json.Unmarshal(raw, &job) != nil || !c.left(&job) {
				continue // what is not a Job is not Orla's
			}
			if err := c.remove(ctx, jobs, job.Metadata.Name); err != nil {
				return err
			}
			c.opts.Log.Info("removed a Job that an earlier Orla left", "job", job.Metadata.Name)
		}
		if next = found.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// remnant has the fields of a Job that say whose it is.
type remnant struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		Made   time.Time         `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Suspend bool `json:"suspend"`
	} `json:"spec"`
}

// left reports whether a Job's Orla has ended.
func (c *Cluster) left(job *remnant) bool {
	labels := job.Metadata.Labels
	if labels[labelInstance] == c.instance && !alive(labels[labelLife]) {
		return true
	}
	ours := labels[labelInstance] != "" && labels[labelLife] != "" // "orla" may be somebody else's word as well
	return ours && job.Spec.Suspend && time.Since(job.Metadata.Made) > forgotten
}
