package wiring

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/manifest"
)

// Packages are the packages of Python and Node that the tools need, of one configuration. Without a state folder
// none are installed.
type Packages struct {
	store       *deps.Store // nil without a state folder
	environ     []string    // as environ.Clean returns it
	folder, key string      // the tools folder, and its name in the state folder
	partial     bool        // not all of its tools are served
	log         *slog.Logger

	mu   sync.Mutex            // guards the fields that follow
	used map[string]*deps.Tool // by the tool's name
	next map[string]*deps.Tool // the same, of manifests that wait for them; see Prepare
}

func (p *Packages) open(cfg *config.Loaded, launcher launch.Launcher, confine deps.Confine, clean []string, log *slog.Logger) {
	p.environ, p.folder, p.key, p.used = clean, config.Absolute(cfg.ToolsDir), folderKey(cfg), map[string]*deps.Tool{}
	p.log, p.next = log, map[string]*deps.Tool{}
	p.partial = cfg.Only != "" // orla dev
	if dir := config.Absolute(config.StateDir(cfg, "env")); dir != "" {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real // a sandbox shows paths without links
		}
		p.store = deps.NewStore(deps.Options{Dir: dir, Launcher: launcher, Environ: clean, Log: log, Confine: confine, ConfinedUser: sandbox.ID, MaxBytes: int64(cfg.MaxEnvironment)})
	}
}

// of returns the packages of a tool; nil if it needs none.
func (p *Packages) of(t manifest.Tool) *deps.Tool {
	source, ok := environ.Dependencies(t, p.environ)
	if !ok || p.store == nil {
		return nil
	}
	tool := p.store.Tool(source)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[t.Name] = tool
	return tool
}

// Await waits until the packages of a tool are installed, and reports whether it had to.
func (p *Packages) Await(ctx context.Context, name string) (waited bool, _ error) {
	p.mu.Lock()
	tool := p.used[name]
	p.mu.Unlock()
	if tool == nil || !tool.Missing() {
		return false, nil
	}
	return true, tool.Ensure(ctx, func(string) {})
}

// Keep removes the environments that no tool needs any more. tools are all that are served.
func (p *Packages) Keep(tools []manifest.Tool) {
	if p.store == nil || p.partial {
		return
	}
	served := make(map[string]bool, len(tools))
	for _, t := range tools {
		served[t.Name] = true
	}
	p.mu.Lock()
	var used []*deps.Tool
	for name, tool := range p.used {
		if served[name] {
			used = append(used, tool)
		} else {
			delete(p.used, name)
			delete(p.next, name)
		}
	}
	used = slices.AppendSeq(used, maps.Values(p.next))
	p.mu.Unlock()
	p.store.Keep(p.folder, p.key, used)
}

// Prepare installs the packages of a new manifest of a tool that is served, if they are missing, and reports
// whether the old one is to be kept for now. done is called when they are there. If they cannot be installed, the old
// manifest is kept until something changes.
func (p *Packages) Prepare(t manifest.Tool, done func()) (wait bool) {
	source, ok := environ.Dependencies(t, p.environ)
	if !ok || p.store == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tool := p.next[t.Name]
	if going := tool != nil && tool.Needs(source); !going {
		tool = p.store.Tool(source)
	}
	switch {
	case !tool.Missing():
		delete(p.next, t.Name)
		return false
	case tool == p.next[t.Name] && (!tool.Changed() || tool.Failed()):
		return true // it is being installed, or cannot be
	}
	p.next[t.Name] = tool
	p.log.Info("installing dependencies", "tool", t.Name, "reason", "its manifest has changed")
	p.store.Background(func(ctx context.Context) {
		if err := tool.Install(ctx, func(string) {}); err != nil {
			p.log.Error("dependencies could not be installed; keeping the process", "tool", t.Name, "reason", "its manifest has changed", "err", err)
			return
		}
		done()
	})
	return true
}

// InstallPackages installs what a tool needs of other package managers into the state folder, for a process that does not serve: an
// Orla that serves finds it there. It is not removed before end. tried is false if the state folder is another user's, who could
// not use it.
func InstallPackages(ctx context.Context, cfg *config.Loaded, t manifest.Tool) (tried bool, end func(), err error) {
	dir := config.Absolute(config.StateDir(cfg, "env"))
	end = func() {}
	source, ok := environ.Dependencies(t, environ.Clean(os.Environ()))
	if !ok {
		return true, end, nil
	}
	if dir == "" || !isMine(dir) {
		return false, end, nil
	}
	log := slog.New(slog.DiscardHandler)
	local, err := newLocal(launch.Options{Log: log}, nil)
	if err != nil {
		return false, end, err
	}
	host := sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log})
	var p Packages
	p.open(cfg, local.Guarded(), func(writes []string) launch.Launcher { return confine(host, writes) }, environ.Clean(os.Environ()), log)
	end = func() { p.store.Close(); local.Close(); host.Close() }
	return true, end, p.store.Tool(source).Install(ctx, func(string) {})
}

// isMine reports whether a folder belongs to this user, or can be made by it.
func isMine(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if os.IsNotExist(err) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return false
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && int(stat.Uid) == os.Geteuid()
	}
}
