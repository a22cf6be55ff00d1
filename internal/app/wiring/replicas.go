package wiring

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/cluster/sealed"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/mcpbridge"
)

// Shared is what this process shares with the other replicas of the same Orla (SPEC P3, P4).
type Shared struct {
	*replicas.Replicas
	sessions *sealed.Sessions // nil before Join
	client   *outbound.Client // for the capsules that others hold
	api      *kubeapi.Client
	all      bool // capsules of every kind have one process in all replicas
	clock    *documents.Clock
	in       names // which replicas
	log      *slog.Logger
}

// names say which replicas.
type names struct{ namespace, group string }

// podNamespace is where Kubernetes tells a pod its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// newShared returns what a configuration says about replicas; nil if this process is the only one. It sends nothing.
func newShared(cfg *config.Loaded, log *slog.Logger) (*Shared, error) {
	if cfg.ReplicaListen == "" || cfg.Stdio || cfg.Only != "" {
		return nil, nil
	}
	reach, err := kubeapi.Load(cfg.K8sKubeconfig, cfg.K8sContext)
	if err != nil {
		return nil, whichCluster(cfg, "replica_listen", err)
	}
	clock := new(documents.Clock)
	api, err := kubeapi.New(reach, "orla/"+version.Version(), clock.Wrap)
	if err != nil {
		return nil, fmt.Errorf("replica_listen: the API server of Kubernetes cannot be used: %w", err)
	}
	own, _ := os.ReadFile(podNamespace) // there is none outside of a pod
	pod, _ := os.Hostname()             // a name is made without it
	in := names{cmp.Or(cfg.ReplicaNamespace, strings.TrimSpace(string(own)), "default"), cmp.Or(cfg.ReplicaGroup, "orla")}
	r, err := replicas.New(replicas.Options{
		Client: api, Namespace: in.namespace, Group: in.group,
		Pod: pod, Address: cfg.ReplicaReached(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &Shared{Replicas: r, client: outbound.New(outbound.Options{Transport: r.Transport()}), api: api, clock: clock, all: cfg.ReplicaCapsules == config.OnceAll, in: in, log: log}, nil
}

// group names the replicas that serve together, the same on each of them; "" for the only process.
func (s *Shared) group() string {
	if s == nil {
		return ""
	}
	return s.in.namespace + "/" + s.in.group
}

// documents returns what the replicas have in common of one part; nil for the only process.
func (s *Shared) documents(part string) *documents.Documents {
	if s == nil {
		return nil
	}
	return documents.New(documents.Options{
		Client: s.api, Namespace: s.in.namespace, Group: s.in.group, Part: part, Key: s.OpenBox, Now: s.clock.Now, Log: s.log,
	})
}

// joinTime is how long the API server may be away when a replica starts.
const joinTime = time.Minute

// Join gets from the API server what the replicas have in common, and returns what the bridge needs of it; nil for the only
// process.
func (s *Shared) Join(ctx context.Context) (*mcpbridge.Shared, error) {
	if s == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	box, err := s.OpenBox(ctx)
	if err != nil {
		return nil, err
	}
	docs := s.documents("sessions")
	if err := docs.Unlock(ctx); err != nil {
		return nil, err
	}
	s.sessions = sealed.New(s.Replicas, box, docs, s.log)
	return &mcpbridge.Shared{Replica: s.Self(), States: box.Key("requestState")}, nil
}

// Serve implements suture.Service.
func (s *Shared) Serve(ctx context.Context) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		defer recovered.To(s.log, "write what clients set in sessions", nil)
		s.sessions.Serve(ctx)
	})
	return s.Replicas.Serve(ctx)
}

func (s *Shared) close() {
	if s != nil {
		s.api.Close()
	}
}

// review makes a provider compare its lists with what is accepted, which another replica has changed.
func (p *Parts) review(provider string) {
	if of, ok := p.Supervisor.Catalog().Peer(provider); ok {
		if c, ok := of.(*capsule.Capsule); ok {
			c.Review()
		}
	}
}
