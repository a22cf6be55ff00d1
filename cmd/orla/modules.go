package main

import (
	"log/slog"

	"github.com/orla-project/orla/internal/artifact"
	"github.com/orla-project/orla/internal/config"
	kindwasm "github.com/orla-project/orla/internal/kind/wasm"
	"github.com/orla-project/orla/internal/outbound"
	"github.com/orla-project/orla/internal/version"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// modules is what tools of type wasm share. It takes nothing before one is called.
type modules struct {
	runtime *wasm.Runtime
	client  *outbound.Client // a module comes from elsewhere, and never from this machine
	store   *artifact.Store
}

func newModules(cfg *config.Loaded, services *services, log *slog.Logger) *modules {
	client := outbound.New(outbound.Options{Private: outbound.Private(cfg.AllowPrivateEndpoints), Far: true})
	return &modules{
		runtime: wasm.NewRuntime(wasm.Options{CacheDir: config.StateDir(cfg, "compiled"), Log: log}),
		client:  client,
		store: artifact.New(artifact.Options{
			Dir: config.StateDir(cfg, "modules"), Client: client, Secrets: services.secrets.Resolve, UserAgent: "orla/" + version.Version(), Log: log,
		}),
	}
}

// point makes the modules what cfg says.
func (m *modules) point(cfg *config.Loaded) {
	m.client.Allow(outbound.Private(cfg.AllowPrivateEndpoints))
}

func (m *modules) close() {
	m.runtime.Close()
	m.client.Close()
}

// wasm makes the provider of a tool of type wasm. Its calls take the places that
// processes do: they take memory and processors as these do.
func (p *parts) wasm(t manifest.Tool) (supervisor.Provider, error) {
	return kindwasm.New(t, kindwasm.Options{
		Runtime: p.modules.runtime, Fetch: p.modules.store.Fetch, Slots: p.slots, Auth: p.services.auth(), Log: p.log,
	})
}
