// Package resources serves the custom resources of Orla in one namespace of a Kubernetes cluster (SPEC P2): which
// documents there are, the Secrets that they name, and what is written back of them.
package resources

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/objects"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

const (
	group   = "orloj.dev"
	version = "v1"
)

// kind is a kind of custom resource.
type kind struct {
	name   string
	plural string
	rule   bool // calls are denied while its objects are not known
}

var kinds = []kind{
	{"Tool", "tools", false},
	{"McpServer", "mcpservers", false},
	{"AgentRole", "agentroles", true},
	{"AgentPolicy", "agentpolicies", true},
	{"ToolPermission", "toolpermissions", true},
}

func (k kind) resource() kubeapi.Resource {
	return kubeapi.Resource{Group: group, Version: version, Name: k.plural}
}

// Options say where the resources are.
type Options struct {
	Client    *kubeapi.Client
	Namespace string
	Dir       string // absolute: relative paths in documents are relative to it
	Holder    string // the name of this process, which no other has
	Log       *slog.Logger
}

// Resources are the custom resources of a namespace. A nil *Resources has none. Its methods may be called from any
// goroutine, except for Snapshot and Applied.
type Resources struct {
	Options
	of      []followed    // as kinds
	dirty   chan struct{} // holds that an object has changed
	changed chan struct{} // holds that Snapshot may differ
	poke    chan struct{} // holds that the status of objects may differ
	secrets secretCache

	last []seen // of the last Snapshot

	mu      sync.Mutex // guards applied
	applied []seen
}

// followed is a kind and its objects.
type followed struct {
	kind
	*objects.Objects
}

// kept is what is kept of an object for as long as only its status changes.
type kept struct {
	discover.Document
	name, uid  string
	generation int64
}

// seen is an object as it was when it was applied.
type seen struct {
	of *followed
	*kept
}

// New returns Resources that know nothing until Start.
func New(o Options) *Resources {
	r := &Resources{Options: o, dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1), poke: make(chan struct{}, 1)}
	for _, k := range kinds {
		keep := func(of *objects.Object) any { return r.keep(k, of) }
		r.of = append(r.of, followed{k, objects.New(objects.Options{
			Client: o.Client, Of: k.resource(), Namespace: o.Namespace, Changed: r.dirty, Keep: keep, Log: o.Log,
		})})
	}
	return r
}

// keep returns what is kept of an object.
func (r *Resources) keep(k kind, of *objects.Object) *kept {
	one := &kept{name: of.Name, uid: of.UID, generation: of.Generation}
	one.Source, one.Dir, one.Rule, one.Fault = k.name+"/"+of.Name, r.Dir, k.rule, of.Fault
	one.Set(of.Document)
	return one
}

// Start follows the resources until stop is called, and keeps their status up to date by facts while no other process
// does.
func (r *Resources) Start(ctx context.Context, facts func() Facts) (stop func()) {
	if r == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, one := range r.of {
		running.Go(func() {
			defer recovered.To(r.Log, "follow the resources of the cluster", nil)
			one.Serve(ctx)
		})
	}
	running.Go(func() {
		defer recovered.To(r.Log, "wait for changes of the resources of the cluster", nil)
		r.settle(ctx)
	})
	running.Go(func() {
		defer recovered.To(r.Log, "write the status of resources", nil)
		r.keepStatus(ctx, facts)
	})
	return func() {
		cancel()
		running.Wait()
		r.Client.Close()
	}
}

const (
	// quiet is how long nothing has to change until changes are applied; latest is how long they wait at most.
	quiet, latest = 100 * time.Millisecond, time.Second
)

// settle reports changes that come shortly after each other as one.
func (r *Resources) settle(ctx context.Context) {
	for {
		select {
		case <-r.dirty:
		case <-ctx.Done():
			return
		}
		last := time.After(latest)
		for waiting := true; waiting; {
			select {
			case <-r.dirty:
			case <-time.After(quiet):
				waiting = false
			case <-last:
				waiting = false
			case <-ctx.Done():
				return
			}
		}
		notify(r.changed)
	}
}

// notify puts a value into a channel that holds one, unless there is one.
func notify(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Changed returns what gets a value when Snapshot may differ; nil for nil.
func (r *Resources) Changed() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.changed
}

// Await waits until all resources have been listed, for most at most, or until ctx ends.
func (r *Resources) Await(ctx context.Context, most time.Duration) {
	if r == nil {
		return
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for _, one := range r.of {
		select {
		case <-one.Ready():
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Snapshot returns what is known now; nil for nil. Where a kind of rules is not known, every call has to be denied.
func (r *Resources) Snapshot() *discover.Cluster {
	if r == nil {
		return nil
	}
	c := &discover.Cluster{}
	r.last = nil
	for i := range r.of {
		k := &r.of[i]
		all, err := k.All()
		if err != nil {
			err = fmt.Errorf("the %s of the namespace %s are not known: %w", k.plural, r.Namespace, err)
			if k.rule {
				err = fmt.Errorf("%w; every call is denied until they are", err)
			}
			c.Problems = append(c.Problems, manifest.Problem{Path: "kubernetes/" + k.plural, Severity: manifest.Fault, Err: err, Denies: k.rule})
		}
		r.last = slices.Grow(r.last, len(all))
		for _, object := range all {
			one := object.Kept.(*kept) // see keep
			c.Documents = append(c.Documents, &one.Document)
			r.last = append(r.last, seen{k, one})
		}
	}
	return c
}

// Applied says that the last Snapshot is in force: the facts are about it from now on.
func (r *Resources) Applied() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.applied = r.last
	r.mu.Unlock()
	notify(r.poke)
}
