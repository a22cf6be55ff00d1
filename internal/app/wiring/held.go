package wiring

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/supervisor"
)

const (
	// again and latest are the shortest and the longest pause after a failure until a connection with the holder is made again.
	// It waits for the holder then, and so it needs no long ones: calls would wait for a process that is there.
	again, latest = 500 * time.Millisecond, 5 * time.Second
	// failing is how long a holder may say that the process fails until the connection has failed too.
	failing = 2 * time.Second
	// firstAsked and lastAsked are the shortest and the longest pause until a holder is asked again that cannot be called yet.
	firstAsked, lastAsked = 100 * time.Millisecond, time.Second
)

// generation is the variable that tells a process which one of its capsule it is, among those of all replicas. A launcher
// of Pods sets it itself.
const generation = "ORLA_GENERATION"

// once reports whether a capsule has one process in all replicas together.
func (s *Shared) once(t manifest.Tool) bool {
	return s != nil && t.Runtime.Remote == nil && (s.all || inPods(t))
}

// inPods reports whether the processes of a capsule are Pods, by terms that do not refuse it.
func inPods(t manifest.Tool) bool {
	terms := &t.Isolation.Terms
	return t.Isolation.Isolated() && terms.Backend == manifest.BackendKubernetes && terms.Refused == ""
}

// heldCapsule is a capsule that one replica runs for all (SPEC P3). To the supervisor of each it is a connection with that one,
// which may be this replica itself. What is decided about calls is decided there.
type heldCapsule struct {
	*capsule.Capsule

	shared *Shared
	tool   manifest.Tool
	opts   capsule.Options // of the process
	parts  *Parts
}

// held makes the provider of such a capsule.
func (p *Parts) held(t manifest.Tool, opts capsule.Options) (supervisor.Provider, error) {
	h := &heldCapsule{shared: p.Shared, tool: t, opts: opts, parts: p}
	far := t
	far.Isolation, far.Requires = manifest.Isolation{}, nil
	r := &far.Runtime
	r.Handshake, r.Protocol, r.Start, r.IdleTimeout, r.HotLoad, r.Health = manifest.HandshakeMCP, manifest.ProtocolStateless, manifest.StartEager, 0, manifest.HotLoad{}, nil
	r.Restart.MaxFailures, r.Restart.Initial, r.Restart.Max = 0, again, latest // the other end counts those of the process
	r.Remote = &manifest.Remote{Endpoint: replicas.CapsuleURL("replica", t.Name)}
	opts.Packages, opts.Taken, opts.Launcher, opts.Holds = nil, nil, nil, nil // the Lease has an operator's orders
	opts.Connect, opts.Own = func(ctx context.Context) (capsule.Connection, error) { return h.connect(ctx, far) }, true
	var err error
	h.Capsule, err = capsule.New(far, opts)
	return h, err
}

// connect connects to the replica that holds the capsule. It waits for one.
func (h *heldCapsule) connect(ctx context.Context, far manifest.Tool) (capsule.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, far.Runtime.StartupTimeout)
	defer cancel()
	holder, err := h.holder(ctx)
	if err != nil {
		return nil, err
	}
	to := *far.Runtime.Remote
	to.Endpoint = replicas.CapsuleURL(holder, far.Name)
	far.Runtime.Remote = &to
	return remote.Connect(far, remote.Options{
		Client: h.shared.client, UserAgent: "orla/" + version.Version(), Own: true, Sign: sign, Log: h.opts.Log,
		Over: func(ctx context.Context) bool { return h.shared.Moved(ctx, far.Name, holder) },
	})(ctx)
}

// holder waits for a replica that holds the capsule, and whose process can be called.
func (h *heldCapsule) holder(ctx context.Context) (string, error) {
	why := "no replica holds it yet"
	var since time.Time // it fails
	for pause := firstAsked; ; pause = min(2*pause, lastAsked) {
		holder, err := h.shared.Holder(ctx, h.tool.Name)
		if err == nil {
			if why, err = h.shared.Serves(ctx, holder, h.tool.Name); err == nil {
				return holder, nil
			}
		}
		switch {
		case !errors.Is(err, replicas.ErrFails):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) > failing || !pace.Sleep(ctx, pause) {
			return "", fault.Wrap(fault.NotReady, cmp.Or(context.Cause(ctx), err), "%s: %s", h.tool.Name, why)
		}
	}
}

// sign says to the holder whose share a request counts as. It does not get the ids of sessions.
func sign(to http.Header, whose turns.Owner) {
	host, isHost := strings.CutPrefix(whose.Session, client.OwnerOf("", "", "").Session)
	if !isHost {
		host = fmt.Sprintf("session-%x", sha256.Sum256([]byte(whose.Session)))
	}
	by := passed.Caller{Name: whose.Caller, Host: host}
	by.Sign(to)
}

// ended returns a context that has ended, for orders whose end is not awaited.
func ended(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	end()
	return ctx
}

// Stop stops the process on whichever replica holds the capsule, and the connections of all replicas, until Start or Restart on any
// of them.
func (h *heldCapsule) Stop(ctx context.Context) error {
	if err := h.tell(ctx, replicas.StopOrder); err != nil {
		return err
	}
	return h.Capsule.Stop(ctx)
}

// Start ends that on all replicas.
func (h *heldCapsule) Start(ctx context.Context) error {
	if err := h.tell(ctx, replicas.StartOrder); err != nil {
		return err
	}
	return h.Capsule.Start(ctx)
}

// Restart has the replica that holds the capsule start a new process. It does not wait for that.
func (h *heldCapsule) Restart(ctx context.Context) error {
	if err := h.tell(ctx, replicas.RestartOrder); err != nil {
		return err
	}
	return h.Capsule.Start(ctx)
}

func (h *heldCapsule) tell(ctx context.Context, order replicas.Order) error {
	if err := h.shared.Tell(ctx, h.tool.Name, order); err != nil {
		return fault.Wrap(fault.NotReady, err, "%s: %s", h.tool.Name, err)
	}
	return nil
}

// obey does to the process what an operator of any replica wants, until ctx ends.
func (h *heldCapsule) obey(ctx context.Context, back *supervisor.Supervisor) error {
	over := ended(ctx)
	h.shared.Orders(ctx, h.tool.Name, func(order replicas.Order) {
		process, err := back.Operate(h.tool.Name)
		if err != nil { // it could not be applied
			return
		}
		switch order {
		case replicas.StopOrder:
			_ = process.Stop(over) // the log says what becomes of it
		case replicas.StartOrder:
			_ = process.Start(over)
		case replicas.RestartOrder:
			_ = process.Restart(over)
		case replicas.NoOrder:
		}
	})
	return ctx.Err()
}

// Serve keeps the connection, and whenever this replica holds the capsule its process too.
func (h *heldCapsule) Serve(ctx context.Context) error {
	var holding sync.WaitGroup
	defer holding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := ended(ctx)
	stopped := h.shared.Ordered(h.tool.Name) == replicas.StopOrder
	if stopped {
		_ = h.Capsule.Stop(over) // the log says what becomes of it
	}
	holding.Go(func() {
		defer recovered.To(h.opts.Log, "follow an operator's orders to all replicas", func(any) { cancel() })
		h.shared.Orders(ctx, h.tool.Name, func(order replicas.Order) {
			stops := order == replicas.StopOrder
			if stops {
				_ = h.Capsule.Stop(over)
			} else if stopped {
				_ = h.Capsule.Start(over)
			}
			stopped = stops
		})
	})
	holding.Go(func() {
		defer recovered.To(h.opts.Log, "hold a capsule", func(any) { cancel() })
		h.shared.Hold(ctx, h.tool.Name, h.run)
	})
	return h.Capsule.Serve(ctx)
}

// run runs the process, and serves it to all replicas under its own names, until ctx ends and nothing of it is left.
func (h *heldCapsule) run(ctx context.Context, n int64) {
	of, opts := h.tool, h.opts
	if inPods(of) {
		opts.Launcher = h.parts.LastProcesses.record(of.Name, h.parts.clusteredAt(of, n))
	} else {
		of.Run.Env = maps.Clone(of.Run.Env)
		if of.Run.Env == nil {
			of.Run.Env = map[string]string{}
		}
		of.Run.Env[generation] = strconv.FormatInt(n, 10)
	}
	of = underOwnNames(of)
	opts.Lists, opts.Pins, opts.Holds = nil, nil, records.NewHolds("") // as above
	opts.Holds.Save(of, h.shared.Ordered(of.Name) == replicas.StopOrder, opts.Log)
	log := opts.Log
	var process atomic.Pointer[capsule.Capsule]
	back := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
			made, err := capsule.New(t, opts)
			process.Store(made)
			return made, err
		}},
		Wrap: retry.Wrap(retry.Options{Stopping: ctx.Done, Log: log}),
		Log:  log,
	})
	bridge := mcpbridge.New(back, mcpbridge.Options{Version: version.Version(), MaxInline: math.MaxInt32, Log: log})
	front := httpfront.New(bridge, httpfront.Settings{MaxRequest: math.MaxInt32})
	lasting := context.WithoutCancel(ctx)
	backCtx, endBack := context.WithCancel(lasting)
	frontCtx, endFront := context.WithCancelCause(lasting)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer endBack()
	serve := func(until context.Context, what func(context.Context) error) {
		serving.Go(func() {
			defer recovered.To(log, "serve a capsule to all replicas", nil)
			_ = what(until) // it ends by the context alone
		})
	}
	serve(backCtx, back.Serve)
	serve(frontCtx, bridge.Serve)
	serve(backCtx, func(ctx context.Context) error { return h.obey(ctx, back) })
	if failed := back.Apply([]manifest.Tool{of}).Failed[of.Name]; failed != nil {
		log.Error("a capsule cannot be run for all replicas", "tool", of.Name, "err", failed)
	}
	offered := newOffered(front)
	if made := process.Load(); made != nil { // else the log says why
		serve(backCtx, func(ctx context.Context) error { return offered.follow(ctx, made) })
	}
	h.shared.Offer(of.Name, offered)
	<-ctx.Done()
	h.shared.Offer(of.Name, nil)
	if !replicas.Lost(ctx) {
		offered.await(h.parts.grace())
	}
	endFront(errMoves)
}

// errMoves is what calls in flight fail with when their replica holds the capsule no longer. It is not known what they have done,
// as when the process crashes.
var errMoves = fault.New(fault.NotReady, "the capsule moves to another replica, and the call had not ended; it is not known what it has done; try again")

// underOwnNames returns a capsule as it is where it runs for all replicas: the other end gives the names to its tools. All
// else stays: what a process sees of this machine depends on what described it.
func underOwnNames(t manifest.Tool) manifest.Tool {
	none := ""
	t.Runtime.ToolPrefix = &none
	return t
}
