// Package wiring joins the parts that answer calls: launchers, sandboxes, container engines
// and clusters, secrets and services, modules, and the supervisor with its providers.
package wiring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/call/audited"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/kind/grpc"
	"github.com/orla-project/orla/internal/kind/mcptool"
	"github.com/orla-project/orla/internal/kind/post"
	kindwasm "github.com/orla-project/orla/internal/kind/wasm"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/observe/audit"
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

// Parts are the joined parts that answer calls. The caller closes them.
type Parts struct {
	launchers
	governing
	Supervisor *supervisor.Supervisor
	Slots      *simple.Slots
	Hub        *watch.Hub
	Services   *Services
	Modules    *Modules
	Audit      *audit.Log // nil for none
	kept
	adopted adopted
	log     *slog.Logger

	Tenants atomic.Bool // there are several callers; see ManyCallers
}

// governing decides about calls.
type governing struct {
	Governance governance.Gate
	Approving  Approving
}

// kept is what Orla keeps of capsules between two starts.
type kept struct {
	Lists *records.Lists
	Pins  *pins.Store
	Holds *records.Holds // nil for a call without a server, which ignores stops by an operator
}

// launchers start processes, on this machine and elsewhere.
type launchers struct {
	cgroup        *cgroup.Root // nil where none was delegated
	Launcher      *launch.Local
	sandboxes     *sandbox.Host
	engines       *engines // of containers
	clusters      *clusters
	LastProcesses LastProcesses
	Packages      Packages // of the tools whose processes are started here
	Shared        *Shared  // what is elsewhere too; nil for the only replica
	shutdownGrace atomic.Int64
}

// ManyCallers reports whether a configuration has several callers, who must not learn about each
// other (SPEC N2).
func ManyCallers(cfg *config.Loaded) bool {
	return len(cfg.Auth.Tokens) > 1 || cfg.Auth.OAuth.Issuer != ""
}

// Join makes the parts that cfg describes, without any tool yet. guard is the command of the guard,
// which cleans up after this process; nil for a process that does not serve. That one does not take over a cgroup, and has a
// guard only while it installs packages and after that.
//
// before is what the parts of the program before have given; nil for nothing.
func Join(cfg *config.Loaded, guard []string, before *Given, log *slog.Logger) (_ *Parts, err error) {
	var root *cgroup.Root
	if guard != nil {
		root = openCgroupAfter(before, log) // before any process is started, so that all of them begin in it
	}
	launcher, err := newLocal(launch.Options{Guard: guard, Cgroup: root, Log: log}, before)
	if err != nil {
		root.Close()
		return nil, err
	}
	var auditLog *audit.Log
	defer func() {
		if err != nil {
			auditLog.Close()
			launcher.Close()
			root.Close()
		}
	}()
	cluster, err := openCluster(cfg, guard != nil, log)
	if err != nil {
		return nil, err
	}
	if auditLog, err = openAudit(cfg, log); err != nil {
		return nil, err
	}
	p := &Parts{
		Slots: simple.NewShared(cfg.MaxConcurrentCalls),
		Hub:   watch.NewHub(),
		kept: kept{
			Lists: records.NewLists(config.StateDir(cfg, "lists")),
			Pins:  pins.NewStore(config.Absolute(config.StateDir(cfg, "pins")), log),
		},
		Services: newServices(cfg, cluster, log),
		Audit:    auditLog,
		log:      log,
	}
	p.Governance.Log, p.Governance.Partial = log, cfg.Only != "" // of orla dev
	p.ConfigureApprovals(cfg)
	p.Approving.Announcer, p.Approving.Passkeys = p.newAnnouncer(), passkey.NewStore(config.Absolute(stateFile(cfg, "passkeys")))
	p.Governance.Memory = stateFile(cfg, "rules")
	p.cgroup, p.Launcher = root, launcher
	if guard != nil {
		if p.Shared, err = newShared(cfg, log); err != nil {
			return nil, err
		}
		p.Governance.Open = p.openApprovals(cfg, log)
	}
	p.shutdownGrace.Store(int64(cfg.ShutdownGrace))
	p.adopt(before)
	p.sandboxes = sandbox.NewHost(sandbox.HostOptions{Local: launcher, Cgroup: root, Log: log})
	p.Tenants.Store(ManyCallers(cfg))
	p.Modules = newModules(cfg, p.Services, log)
	clean := environ.Clean(os.Environ())
	p.Packages.open(cfg, launcher.Guarded(), p.confine, clean, log)
	p.clusters = &clusters{folder: cfg.ToolsDir, group: p.Shared.group(), serves: guard != nil, secrets: p.Services.secrets.Resolve, log: log}
	p.engines = &engines{local: launcher, environ: clean, folder: cfg.ToolsDir, serves: guard != nil, log: log}
	options := supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Simple:   func(t manifest.Tool) (supervisor.Provider, error) { return p.simple(t, clean) },
			manifest.Cli:      func(t manifest.Tool) (supervisor.Provider, error) { return p.simple(t, clean) },
			manifest.Capsule:  func(t manifest.Tool) (supervisor.Provider, error) { return p.capsule(developed(cfg, t), clean) },
			manifest.MCP:      p.mcpTool,
			manifest.HTTP:     p.Services.post,
			manifest.External: p.Services.post,
			manifest.Webhook:  p.Services.webhook,
			manifest.GRPC:     p.Services.grpc,
			manifest.Wasm:     p.wasm,
		},
		Admit:        p.Governance.Admit,
		AdmitRequest: p.Governance.AdmitRequest,
		Published:    p.Governance.Listed,
		Wrap: retry.Wrap(retry.Options{
			Stopping: func() <-chan struct{} { return p.Supervisor.Stopping() },
			Log:      log,
		}),
		ClaimFile: stateFile(cfg, "claims"),
		Log:       log,
	}
	if auditLog != nil {
		r := audited.Recorder{Log: auditLog}
		options.Audit, options.Admit = r.Begin, r.Admit(options.Admit)
	}
	p.Supervisor = supervisor.New(options)
	if p.Shared != nil {
		p.Pins.Share(p.Shared.documents("pins"), p.review)
	}
	return p, nil
}

// newLocal makes the launcher of this machine. Without a guard in opts, it has one later; see Join.
func newLocal(opts launch.Options, before *Given) (*launch.Local, error) {
	if before != nil {
		opts.Before = before.Launch
	}
	if opts.Guard == nil {
		command, err := Guard()
		if err != nil {
			return nil, err
		}
		opts.Guard, opts.GuardLater = command, true
	}
	return launch.NewLocal(opts)
}

// folderKey names the tools folder of a configuration in the state folder.
func folderKey(cfg *config.Loaded) string {
	sum := sha256.Sum256([]byte(config.Absolute(cfg.ToolsDir)))
	return hex.EncodeToString(sum[:8])
}

// stateFile returns the file of a tools folder in a part of the state folder; "" for none.
func stateFile(cfg *config.Loaded, part string) string {
	dir := config.StateDir(cfg, part)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, folderKey(cfg)+".json")
}

// simple makes the provider of a tool whose calls are a process each.
func (p *Parts) simple(t manifest.Tool, environ []string) (supervisor.Provider, error) {
	launcher, elsewhere := p.launcherOf(t)
	return simple.New(t, simple.Options{
		Launcher: launcher, Elsewhere: elsewhere, Slots: p.Slots, Environ: environ, Secrets: p.Services.secrets.Resolve,
		Packages: p.Packages.of(t), Shared: p.Tenants.Load,
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

// HoldsOf returns the stops by operators for a process that serves. orla dev ignores them: it always
// runs its tool.
func HoldsOf(cfg *config.Loaded) *records.Holds {
	if cfg.Only != "" {
		return records.NewHolds("")
	}
	return records.NewHolds(config.StateDir(cfg, "held"))
}

// developed returns the manifest of a capsule as it is served. With orla dev, a capsule that failed is
// not started again until its files change, and its author need not be told what changes in its lists.
func developed(cfg *config.Loaded, t manifest.Tool) manifest.Tool {
	if cfg.Only != "" && t.Runtime.Pin == manifest.PinWarn {
		t.Runtime.Pin = manifest.PinOff
	}
	if cfg.Only != "" && t.Runtime.Remote == nil {
		t.Runtime.Restart.MaxFailures = 1
	}
	return t
}

// grace is how long calls in flight may go on.
func (p *Parts) grace() time.Duration { return time.Duration(p.shutdownGrace.Load()) }

// Resize applies max_concurrent_calls of cfg. Calls in flight are not affected.
func (p *Parts) Resize(cfg *config.Loaded) {
	p.Slots.Resize(cfg.MaxConcurrentCalls)
	p.shutdownGrace.Store(int64(cfg.ShutdownGrace))
}

// Close waits for the processes that are left.
func (p *Parts) Close() { p.close(p.Launcher.Close) }

func (p *Parts) close(launcher func()) {
	p.clusters.close()
	p.Packages.store.Close()
	p.engines.close() // before what their command lines are started by
	p.adopted.ending.Wait()
	launcher()
	p.sandboxes.Close()
	p.Services.logins.Close()
	p.Services.client.Close()
	p.Services.issuers.Close()
	p.Modules.close()
	p.cgroup.Close()
	p.Governance.Approvals().Close()
	p.Pins.Close()
	p.Audit.Close()
	p.Shared.close()
}

// KeepAlive runs the services of capsules until end is called.
func (p *Parts) KeepAlive(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { _ = p.Supervisor.Serve(ctx) }) // it ends by ctx alone
	return func() {
		cancel()
		serving.Wait()
	}
}
