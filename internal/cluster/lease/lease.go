// Package lease holds Leases of a Kubernetes API server (coordination.k8s.io/v1): at any moment at most
// one process holds a Lease, and it knows when it no longer does.
//
// Clocks of machines may differ: a process takes over a Lease that it has seen unchanged for the Lease's
// duration by its own clock. The holder stops earlier than that after its last renewal.
//
// Each time that a Lease is acquired it gets a higher generation (leaseTransitions), by which those
// who are asked for something can refuse an earlier holder. A Lease that somebody deletes begins again.
package lease

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Options say which Lease it is, and who wants it.
type Options struct {
	Client    *kubeapi.Client
	Namespace string
	Name      string
	Holder    string          // a name that no other process has, and none has had
	Duration  time.Duration   // 0 for 15 s; at least 1 s
	About     *kubeapi.Object // labels, annotations and ownerReferences that the holder gives the Lease; nil for none
	Log       *slog.Logger
}

const (
	defaultDuration = 15 * time.Second
	// leave is how long the release of a Lease may take when Orla stops.
	leave = 2 * time.Second
)

// Hold waits until it has acquired the Lease and then calls work, again and again until ctx ends or work
// returns without having lost the Lease. The context of work ends when ctx does, or when
// the Lease was lost: it was not renewed in time, or somebody else has it. Hold then waits for work to
// return. It releases the Lease before it returns.
func Hold(ctx context.Context, o Options, work func(ctx context.Context, generation int64)) {
	if o.Duration == 0 {
		o.Duration = defaultDuration
	}
	for ctx.Err() == nil {
		h, ok := o.acquire(ctx)
		if !ok {
			return
		}
		o.Log.Info("lease acquired", "lease", o.Name, "generation", h.generation())
		if !h.keep(ctx, work) {
			h.release(ctx)
			return
		}
		o.Log.Warn("lease lost; waiting to acquire it again", "lease", o.Name, "generation", h.generation())
	}
}

// acquire waits until the Lease is this process's. It returns false if ctx ended before.
func (o Options) acquire(ctx context.Context) (*held, bool) {
	var seen record       // as it was when it last changed
	var changed time.Time // when this process saw that
	said := false
	for ctx.Err() == nil {
		asked := time.Now()
		got, err := o.get(ctx)
		switch {
		case err == nil:
			if got.version() != seen.version() {
				seen, changed = got, asked
			}
			if got.Spec.Holder != "" && got.Spec.Holder != o.Holder && asked.Sub(changed) < max(got.duration(), time.Second) {
				break // somebody else has it
			}
			if h, taken := o.take(ctx, got); taken {
				return h, true
			}
		case kubeapi.IsNotFound(err):
			if h, created := o.take(ctx, record{}); created {
				return h, true
			}
		case !said && ctx.Err() == nil:
			said = true
			o.Log.Warn("lease cannot be read; trying again", "lease", o.Name, "err", err)
		}
		pace.Sleep(ctx, o.Duration/5+rand.N(o.Duration/10)) //nolint:gosec // it spreads requests and protects nothing
	}
	return nil, false
}

// take writes the Lease with this process as its holder. It returns false if that failed, such as
// when another process was faster.
func (o Options) take(ctx context.Context, was record) (*held, bool) {
	asked := time.Now()
	written, err := o.put(ctx, was.takenBy(o, asked))
	if err != nil {
		return nil, false
	}
	return &held{Options: o, last: written, renewed: asked}, true
}

// held is a Lease that this process holds.
type held struct {
	Options
	last    record    // as it was last written
	renewed time.Time // when this process asked for that
}

func (h *held) generation() int64 { return h.last.Spec.Transitions }

// keep calls work and renews the Lease until work has returned. It reports whether the Lease was lost.
func (h *held) keep(ctx context.Context, work func(context.Context, int64)) (lost bool) {
	working, end := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() { end(); <-done }()
	generation := h.generation()
	go func() {
		defer close(done)
		defer recovered.To(h.Log, "work under the lease "+h.Name, nil)
		work(working, generation)
	}()
	for {
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(h.Duration / 5):
		}
		if !h.renew(ctx) && ctx.Err() == nil {
			return true
		}
	}
}

// renew reports whether the Lease is still this process's. Of an API server that does not answer it takes no
// notice until the Lease has nearly ended.
func (h *held) renew(ctx context.Context) (still bool) {
	deadline := h.renewed.Add(h.Duration * 3 / 4)
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		asked := time.Now()
		written, err := h.put(limited, h.last.renewedAt(asked))
		if err == nil {
			h.last, h.renewed = written, asked
			return true
		}
		switch {
		case kubeapi.IsNotFound(err):
			return false
		case kubeapi.IsConflict(err):
			// Somebody has changed it, perhaps only its labels.
			got, err := h.get(limited)
			if err != nil {
				break
			}
			if got.Spec.Holder != h.Holder || got.generation() != h.generation() {
				return false
			}
			h.last = got
			continue
		}
		if !pace.Sleep(limited, h.Duration/20+rand.N(h.Duration/20)) { //nolint:gosec // as above
			return false
		}
	}
}

// release lets others have the Lease at once. If that fails they have to wait until it ends.
func (h *held) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	for {
		_, err := h.put(ctx, h.last.released())
		if !kubeapi.IsConflict(err) {
			return
		}
		got, err := h.get(ctx)
		if err != nil || got.Spec.Holder != h.Holder || got.generation() != h.generation() {
			return
		}
		h.last = got
	}
}
