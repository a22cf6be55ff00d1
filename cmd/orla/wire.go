package main

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/cgroup"
	"github.com/orla-project/orla/internal/config"
	"github.com/orla-project/orla/internal/environ"
	"github.com/orla-project/orla/internal/kind/grpc"
	"github.com/orla-project/orla/internal/kind/mcptool"
	"github.com/orla-project/orla/internal/kind/post"
	kindwasm "github.com/orla-project/orla/internal/kind/wasm"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/retry"
	"github.com/orla-project/orla/internal/watch"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
	"github.com/orla-project/orla/supervisor"
)

var (
	_ supervisor.Provider = (*simple.Command)(nil)
	_ supervisor.Peer     = (*capsule.Capsule)(nil)
	_ supervisor.Operator = (*capsule.Capsule)(nil)
	_ supervisor.Follower = (*mcptool.Tool)(nil)
	_ supervisor.Provider = (*grpc.Tool)(nil)
	_ supervisor.Provider = (*post.Tool)(nil)
	_ supervisor.Provider = (*webhook.Tool)(nil)
	_ supervisor.Talker   = (*webhook.Tool)(nil)
	_ supervisor.Provider = (*kindwasm.Tool)(nil)
)

// parts are the pieces that answer calls, joined. The caller closes them.
type parts struct {
	cgroup     *cgroup.Root // nil where none was delegated
	launcher   *launch.Local
	sandboxes  *sandbox.Host
	engines    *engines // of containers
	clusters   *clusters
	supervisor *supervisor.Supervisor
	slots      *simple.Slots
	hub        *watch.Hub
	lists      *capsule.Lists
	services   *services
	modules    *modules
	governance governance
	memories   memories
	holds      *capsule.Holds // nil for a call without a server, which a stop by hand does not bind
	log        *slog.Logger

	tenants atomic.Bool // there are several callers; see manyCallers
}

// manyCallers reports whether a configuration has callers who are not to learn of
// each other (SPEC N2).
func manyCallers(cfg *config.Loaded) bool { return len(cfg.Auth.Tokens) > 1 }

// join makes the parts that cfg describes, without any tool yet. guard is the
// command that outlives this process to clean up after it; nil for a process
// that does not serve, which takes no cgroup either.
func join(cfg *config.Loaded, guard []string, log *slog.Logger) (*parts, error) {
	var root *cgroup.Root
	if guard != nil {
		root = openCgroup(log) // before anything is started, which is to begin there
	}
	launcher, err := launch.NewLocal(launch.Options{Guard: guard, Cgroup: root, Log: log})
	if err != nil {
		root.Close()
		return nil, err
	}
	p := &parts{
		cgroup:    root,
		launcher:  launcher,
		sandboxes: sandbox.NewHost(sandbox.HostOptions{Local: launcher, Cgroup: root, Log: log}),
		slots:     simple.NewShared(cfg.MaxConcurrentCalls),
		hub:       watch.NewHub(),
		lists:     capsule.NewLists(config.StateDir(cfg, "lists")),
		services:  newServices(cfg),
		log:       log,
	}
	p.tenants.Store(manyCallers(cfg))
	p.modules = newModules(cfg, p.services, log)
	clean := environ.Clean(os.Environ())
	p.clusters = &clusters{folder: cfg.ToolsDir, serves: guard != nil, secrets: p.services.secrets.Resolve, log: log}
	p.engines = &engines{local: launcher, environ: clean, folder: cfg.ToolsDir, serves: guard != nil, log: log}
	p.supervisor = supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Simple:   func(t manifest.Tool) (supervisor.Provider, error) { return p.simple(t, clean) },
			manifest.Cli:      func(t manifest.Tool) (supervisor.Provider, error) { return p.simple(t, clean) },
			manifest.Capsule:  func(t manifest.Tool) (supervisor.Provider, error) { return p.capsule(t, clean) },
			manifest.MCP:      p.mcpTool,
			manifest.HTTP:     p.services.post,
			manifest.External: p.services.post,
			manifest.Webhook:  p.services.webhook,
			manifest.GRPC:     p.services.grpc,
			manifest.Wasm:     p.wasm,
		},
		Admit:        p.governance.admit,
		AdmitRequest: p.governance.admitRequest,
		Wrap: retry.Wrap(retry.Options{
			Stopping: func() <-chan struct{} { return p.supervisor.Stopping() },
			Log:      log,
		}),
		Log: log,
	})
	return p, nil
}

// simple makes the provider of a tool whose calls are a process each.
func (p *parts) simple(t manifest.Tool, environ []string) (supervisor.Provider, error) {
	at := p.placeOf(t)
	return simple.New(t, simple.Options{
		Launcher: at.launcher, Elsewhere: at.elsewhere, Slots: p.slots, Environ: environ, Secrets: p.services.secrets.Resolve,
	})
}

// openCgroup takes over the cgroup that was delegated to Orla, if one was.
func openCgroup(log *slog.Logger) *cgroup.Root {
	root, reason := cgroup.Open(log)
	if root == nil {
		log.Debug("no cgroups for capsules", "reason", reason)
		return nil
	}
	log.Info("cgroups for capsules", "cgroup", root.Dir(), "controllers", root.Controllers())
	return root
}

// holdsOf are the stops by hand that bind whoever serves: who develops one tool
// wants it to run, whatever was done to it elsewhere.
func holdsOf(cfg *config.Loaded) *capsule.Holds {
	if cfg.Only != "" {
		return capsule.NewHolds("")
	}
	return capsule.NewHolds(config.StateDir(cfg, "held"))
}

// bound makes max_concurrent_calls what cfg says. Calls under way keep the
// place they have.
func (p *parts) bound(cfg *config.Loaded) { p.slots.Resize(cfg.MaxConcurrentCalls) }

// close waits for the processes that are left.
func (p *parts) close() {
	p.clusters.close()
	p.engines.close() // before what their command lines are started by
	p.launcher.Close()
	p.sandboxes.Close()
	p.services.client.Close()
	p.modules.close()
	p.cgroup.Close()
}

// keepAlive runs the services of the tools that live until the function that it
// returns is called.
func (p *parts) keepAlive(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.supervisor.Serve(ctx) // it ends by ctx alone
	}()
	return func() {
		cancel()
		<-done
	}
}
