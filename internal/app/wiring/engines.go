package wiring

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// engines are the container engines that tools use, by their programs. An engine is used only when
// a tool needs it.
type engines struct {
	local   *launch.Local
	environ []string
	folder  string // that is served
	serves  bool   // this process does, and looks for what an earlier one left
	log     *slog.Logger

	mu        sync.Mutex // guards byProgram
	byProgram map[string]*container.Engine
}

// named returns the engine of a program.
func (e *engines) named(program string) *container.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.byProgram[program]; known != nil {
		return known
	}
	folder, err := filepath.Abs(e.folder)
	if err != nil {
		folder = e.folder
	}
	opts := container.EngineOptions{Program: program, Local: e.local, Environ: e.environ, Folder: folder, Log: e.log}
	if self, err := os.Executable(); err == nil {
		opts.Prober = []string{self, probeCommand}
	}
	made := container.NewEngine(opts)
	if e.byProgram == nil {
		e.byProgram = map[string]*container.Engine{}
	}
	e.byProgram[program] = made
	if e.serves {
		made.Sweep()
	}
	return made
}

// close waits for the containers that are left.
func (e *engines) close() {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.byProgram))
	e.mu.Unlock()
	for _, made := range all {
		made.Close()
	}
}

// contained returns the launcher of a tool whose processes run in a container each.
func (p *Parts) contained(t manifest.Tool) launch.Launcher {
	i := t.Isolation
	opts := container.Options{
		Engine:    p.engines.named(i.Terms.Engine),
		Tool:      t.Name,
		Image:     i.Image,
		Network:   i.Network,
		Shared:    discovery.SharedNetwork(i.Network), // discovery.ApplyTerms has checked that the operator allows it
		User:      i.Terms.User,
		Runtime:   i.Terms.Runtime,
		Limits:    cgroup.Limits(i.Resources),
		Sandboxed: i.Mode == manifest.IsolationSandboxed,
	}
	if !i.PullSecret.IsZero() {
		opts.PullSecret = func() (secret.Value, error) { return p.Services.secrets.Resolve(i.PullSecret) }
	}
	return container.New(opts)
}
