package wiring

import (
	"log/slog"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
	kindwasm "github.com/orla-project/orla/internal/kind/wasm"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/internal/wasm/artifact"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// Modules is what tools of type wasm share. It uses no resources before the first call of one.
type Modules struct {
	runtime *wasm.Runtime
	client  *outbound.Client // fetches modules; it never connects to this machine
	store   *artifact.Store
}

func newModules(cfg *config.Loaded, services *Services, log *slog.Logger) *Modules {
	client := outbound.New(outbound.Options{Private: outbound.Private(cfg.AllowPrivateEndpoints), Far: true})
	return &Modules{
		runtime: wasm.NewRuntime(wasm.Options{CacheDir: config.StateDir(cfg, "compiled"), TotalMemory: int64(cfg.WASMTotalMemory), Log: log}),
		client:  client,
		store: artifact.New(artifact.Options{
			Dir: config.StateDir(cfg, "modules"), Client: client, Secrets: services.secrets.Resolve, UserAgent: "orla/" + version.Version(), Log: log,
		}),
	}
}

// Configure applies the settings of cfg.
func (m *Modules) Configure(cfg *config.Loaded) {
	m.client.Allow(outbound.Private(cfg.AllowPrivateEndpoints))
	m.runtime.SetTotalMemory(int64(cfg.WASMTotalMemory))
}

func (m *Modules) close() {
	m.runtime.Close()
	m.client.Close()
}

// wasm makes the provider of a tool of type wasm. Its calls count for max_concurrent_calls, as
// processes do, since they use as much memory and as many processors.
func (p *Parts) wasm(t manifest.Tool) (supervisor.Provider, error) {
	return kindwasm.New(t, kindwasm.Options{
		Runtime: p.Modules.runtime, Fetch: p.Modules.store.Fetch, Slots: p.Slots, Auth: p.Services.auth(), Log: p.log,
	})
}
