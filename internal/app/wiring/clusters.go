package wiring

import (
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// clusters are the Kubernetes clusters that tools run in. A cluster is used only when a tool needs
// it.
type clusters struct {
	folder  string // that is served
	group   string // of the replicas that serve together; "" for the only one
	serves  bool   // this process does, and looks for what an earlier one left
	secrets func(secret.Ref) (secret.Value, error)
	log     *slog.Logger

	mu sync.Mutex // guards of
	of map[manifest.Cluster]*kube.Cluster
}

// named returns a cluster.
func (c *clusters) named(where manifest.Cluster) *kube.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[where]; known != nil {
		return known
	}
	folder, err := filepath.Abs(c.folder)
	if err != nil {
		folder = c.folder
	}
	made := kube.New(kube.Options{
		Kubeconfig: where.Kubeconfig, Context: where.Context, Namespace: where.Namespace, TTL: where.TTL,
		Instance: folder, Group: c.group, Secrets: c.secrets, Log: c.log,
	})
	if c.of == nil {
		c.of = map[manifest.Cluster]*kube.Cluster{}
	}
	c.of[where] = made
	if c.serves {
		made.Sweep()
	}
	return made
}

// close waits for the Jobs that are left.
func (c *clusters) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, made := range c.of {
		made.Close()
	}
}

// clustered returns the launcher of a tool whose calls run in a Job each, or that is a capsule in a Pod.
func (p *Parts) clustered(t manifest.Tool) launch.Launcher { return p.clusteredAt(t, 0) }

// clusteredAt is clustered for a capsule that this replica holds for all, with a generation: no start replaces the Pod
// of a later one (SPEC P3).
func (p *Parts) clusteredAt(t manifest.Tool, generation int64) launch.Launcher {
	i := t.Isolation
	network := kube.NoNetwork
	if i.Network == string(kube.ClusterNetwork) {
		network = kube.ClusterNetwork
	}
	return p.clusters.named(i.Terms.Cluster).Launcher(kube.Tool{
		Name: t.Name, Image: i.Image, PullSecret: i.PullSecret, Network: network, Limits: cgroup.Limits(i.Resources),
		Generation: func() int64 { return generation },
	})
}
