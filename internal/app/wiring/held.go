package wiring

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
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
	r.Restart.MaxFailures = 0 // the other end counts those of the process
	r.Remote = &manifest.Remote{Endpoint: replicas.CapsuleURL("replica", t.Name)}
	opts.Packages, opts.Taken, opts.Launcher = nil, nil, nil
	opts.Connect = func(ctx context.Context) (capsule.Connection, error) { return h.connect(ctx, far) }
	var err error
	h.Capsule, err = capsule.New(far, opts)
	return h, err
}

// connect connects to the replica that holds the capsule. It waits for one.
func (h *heldCapsule) connect(ctx context.Context, far manifest.Tool) (capsule.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, far.Runtime.StartupTimeout)
	defer cancel()
	holder, err := h.shared.Holder(ctx, far.Name)
	if err != nil {
		return nil, fault.Wrap(fault.NotReady, err, "no replica holds %s yet", far.Name)
	}
	to := *far.Runtime.Remote
	to.Endpoint = replicas.CapsuleURL(holder, far.Name)
	far.Runtime.Remote = &to
	return remote.Connect(far, remote.Options{
		Client: h.shared.client, UserAgent: "orla/" + version.Version(), Own: true, Sign: sign, Log: h.opts.Log,
		Over: func(ctx context.Context) bool { return h.shared.Moved(ctx, far.Name, holder) },
	})(ctx)
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

// Serve keeps the connection, and whenever this replica holds the capsule its process too.
func (h *heldCapsule) Serve(ctx context.Context) error {
	var holding sync.WaitGroup
	defer holding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	opts.Lists, opts.Pins, opts.Holds = nil, nil, nil // as above
	log := opts.Log
	back := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return capsule.New(t, opts) }},
		Wrap:  retry.Wrap(retry.Options{Stopping: ctx.Done, Log: log}),
		Log:   log,
	})
	bridge := mcpbridge.New(back, mcpbridge.Options{Version: version.Version(), MaxInline: math.MaxInt32, Log: log})
	front := httpfront.New(bridge, httpfront.Settings{MaxRequest: math.MaxInt32})
	lasting := context.WithoutCancel(ctx)
	backCtx, endBack := context.WithCancel(lasting)
	frontCtx, endFront := context.WithCancel(lasting)
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
	if failed := back.Apply([]manifest.Tool{of}).Failed[of.Name]; failed != nil {
		log.Error("a capsule cannot be run for all replicas", "tool", of.Name, "err", failed)
	}
	offered := &offered{front: front}
	h.shared.Offer(of.Name, offered)
	<-ctx.Done()
	h.shared.Offer(of.Name, nil)
	if !replicas.Lost(ctx) {
		offered.await(h.parts.grace())
	}
	endFront()
}

// underOwnNames returns a capsule as it is where it runs for all replicas: the other end gives the names to its tools. All
// else stays: what a process sees of this machine depends on what described it.
func underOwnNames(t manifest.Tool) manifest.Tool {
	none := ""
	t.Runtime.ToolPrefix = &none
	return t
}

// offered serves a capsule to replicas.
type offered struct {
	front   *httpfront.Front
	calling budget.Counter // requests that end by themselves
}

// ServeHTTP serves a request of a replica.
func (o *offered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r = passedOn(w, r); r == nil {
		return
	}
	if wire.FirstHeader(r.Header, wire.MethodHeader) != wire.MethodListen {
		o.calling.Add(1)
		defer o.calling.Add(-1)
	}
	r.URL.Path = "/mcp"
	o.front.ServeHTTP(w, r)
}

// await waits, for grace at most, until nothing is being answered.
func (o *offered) await(grace time.Duration) {
	select {
	case <-o.calling.None():
	case <-time.After(grace):
	}
}
