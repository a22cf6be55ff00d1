package wiring

import (
	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/kind/mcptool"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// capsule makes the provider of a capsule: a package, or an McpServer on this machine or elsewhere.
func (p *Parts) capsule(t manifest.Tool, environ []string) (supervisor.Provider, error) {
	launcher, elsewhere := p.launcherOf(t)
	opts := capsule.Options{
		Launcher: launcher, Elsewhere: elsewhere, Environ: environ, Secrets: p.Services.secrets.Resolve, Version: version.Version(),
		Hub: p.Hub, Lists: p.Lists, Pins: p.Pins, Holds: p.Holds, Packages: p.Packages.of(t), Shared: p.Tenants.Load, Log: p.log,
		Taken: p.adopted.of(t),
	}
	if far := t.Runtime.Remote; far != nil {
		opts.Connect = remote.Connect(t, remote.Options{
			Client: p.Services.client, Auth: p.Services.serverAuth(t), UserAgent: "orla/" + version.Version(), Log: p.log,
		})
	}
	if p.Shared.once(t) {
		return p.held(t, opts)
	}
	return capsule.New(t, opts)
}

// mcpTool makes the provider of a tool of type mcp.
func (p *Parts) mcpTool(t manifest.Tool) (supervisor.Provider, error) {
	find := func(name string) (supervisor.Peer, bool) { return p.Supervisor.Catalog().Peer(name) }
	return mcptool.New(t, mcptool.Options{Find: find, Log: p.log})
}
