// Package sandbox starts untrusted processes on this Linux machine, with all of: a read-only root,
// no capability, no new privileges, no network, another user, and limits of memory, CPU and
// processes (SPEC-TOOLS 7.2). If one of the eight cannot be enforced, nothing is started, and the
// error says which one, why, and what to do.
//
// A launch.Local starts the process in new namespaces, as a stage (package shim) that sets up the
// sandbox from the inside. This package computes what the stage does: what is visible (view), what
// the kernel has to refuse (filter, landlock), and which cgroup has the limits. docs/decisions/0020
// says what each part is needed for.
package sandbox

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// ID is the user id and the group id of a process.
const ID = 65532

// DefaultLimits are the limits of a process with all that it starts.
var DefaultLimits = cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64}

// HostOptions configures a Host.
type HostOptions struct {
	// Local starts the processes. Required.
	Local *launch.Local
	// Cgroup is the cgroup that was delegated to Orla. If it is nil or lacks a controller, the Host
	// looks for another one when it is needed.
	Cgroup *cgroup.Root
	// Log is required.
	Log *slog.Logger
}

// Host is shared by all native sandboxes of an Orla. Its methods may be called from any goroutine.
// The caller must Close it, after the Local.
type Host struct {
	local *launch.Local
	log   *slog.Logger

	mu     sync.Mutex // guards the fields that follow; held while looking for a cgroup
	given  *cgroup.Root
	found  *cgroup.Root // the cgroup that the Host found and must close
	why    string       // why none was found
	looked time.Time    // when the Host last looked
	probed time.Time
	answer []Reason
}

// NewHost returns a Host. It looks for a cgroup when the first one is needed.
func NewHost(opts HostOptions) *Host {
	return &Host{local: opts.Local, given: opts.Cgroup, log: opts.Log}
}

// Options configures the sandboxes of one tool.
type Options struct {
	// Limits are the highest limits; a Spec may have lower ones. A zero limit is that of DefaultLimits.
	Limits cgroup.Limits
	// Paths are further visible folders and files of the machine, as absolute paths. Paths that do not
	// exist are ignored.
	Paths []string
	// Hidden are folders and files of the machine, as absolute paths, of which only Paths and the Spec's paths are
	// visible, even if the folders belong to the system's programs.
	Hidden []string
	// Reads and Writes are granted: paths of the machine, absolute and without links, that are visible too, and those
	// that the process can also change. "/" is all but what the system keeps at runtime. A path that is not there is
	// not visible. A process with any of them can make no unix socket: in a visible folder may be one that leads out.
	Reads, Writes []string
	// Network gives the process the network of the machine, without unix sockets.
	Network bool
}

// opens reports whether the sandbox shows more than a package and programs.
func (o Options) opens() bool { return len(o.Reads)+len(o.Writes) > 0 || o.Network }

// Reason says why this machine cannot sandbox processes natively.
type Reason struct {
	What string // that cannot be held: "memory, processors and processes", "a root of its own"
	Why  string
	Fix  string
}

func (r Reason) String() string { return r.What + ": " + r.Why + "; " + r.Fix }

// patience is how long the result of a check is used, good or bad.
const patience = 30 * time.Second

// Close releases the cgroup that the Host has claimed.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found.Close()
	h.found = nil
}

// cells returns a cgroup whose Groups can have all limits; else why there is none.
func (h *Host) cells() (*cgroup.Root, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case bounds(h.given):
		return h.given, ""
	case h.found != nil:
		return h.found, ""
	case h.why != "" && time.Since(h.looked) < patience:
		return nil, h.why
	}
	h.looked = time.Now()
	open := []func(*slog.Logger) (*cgroup.Root, string){cgroup.Open, cgroup.Claim}
	if h.given != nil {
		open = open[1:] // that one is already open
	}
	for _, take := range open {
		var root *cgroup.Root
		if root, h.why = take(h.log); root == nil {
			continue
		}
		if bounds(root) {
			h.found, h.why = root, ""
			return root, ""
		}
		h.why = missing(root)
		root.Close()
	}
	return nil, h.why
}

// renewed reports whether another Root may have become available, since this one lacks a controller:
// the folders of a Root that the Host claimed may have been removed.
func (h *Host) renewed(root *cgroup.Root) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case root == h.given:
		return false
	case root != h.found:
		return true // another goroutine has looked
	case !root.Lost():
		return false
	}
	h.log.Warn("somebody removed the cgroup of sandboxes; making another", "cgroup", root.Dir())
	root.Close()
	h.found = nil
	return true
}

// within returns the lower of two limits each; zero means no limit.
func within(asked, most cgroup.Limits) cgroup.Limits {
	return cgroup.Limits{
		Memory: lesser(asked.Memory, cmp.Or(most.Memory, DefaultLimits.Memory)),
		CPUs:   lesser(asked.CPUs, cmp.Or(most.CPUs, DefaultLimits.CPUs)),
		Pids:   lesser(asked.Pids, cmp.Or(most.Pids, DefaultLimits.Pids)),
	}
}

func lesser[N int | int64 | float64](asked, most N) N {
	if asked <= 0 {
		return most
	}
	return min(asked, most)
}

// bounds reports whether a Root's cgroups can limit memory, CPU and processes.
func bounds(r *cgroup.Root) bool { return r != nil && len(r.Controllers()) == len(bounded) }

// bounded are the controllers that are needed.
var bounded = [...]string{"memory", "cpu", "pids"}

func missing(r *cgroup.Root) string {
	var none []string
	for _, c := range bounded {
		if !slices.Contains(r.Controllers(), c) {
			none = append(none, c)
		}
	}
	return "the cgroup " + r.Dir() + " has no controller for " + strings.Join(none, ", ")
}
