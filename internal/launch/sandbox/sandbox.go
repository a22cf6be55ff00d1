// Package sandbox starts processes on this Linux in which nothing is to be
// trusted: with a root that is read-only, no capability, no new privileges, no
// network, another user, and limits of memory, processors and processes
// (SPEC-TOOLS 7.2). All eight hold, or nothing is started: then the error says
// which does not, why, and what to do.
//
// A process is started by a launch.Local, in new namespaces, as a stage
// (package shim) that makes the sandbox from the inside. This package computes
// what the stage does: what is seen (view), what the kernel is asked to refuse
// (filter, landlock), which cgroup bounds it. What each part is needed for is in
// docs/decisions/0020.
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

// ID is the user and the group that a process is.
const ID = 65532

// DefaultLimits bound what a process and all that it starts may take.
var DefaultLimits = cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64}

// HostOptions configures a Host.
type HostOptions struct {
	// Local starts the processes. Required.
	Local *launch.Local
	// Cgroup is what was delegated to Orla. If nil, or if it cannot bound all,
	// the Host looks for another when it is needed.
	Cgroup *cgroup.Root
	// Log is required.
	Log *slog.Logger
}

// Host is what all native sandboxes of an Orla share. Its methods may be called
// from any goroutine. The caller closes it after the Local.
type Host struct {
	local *launch.Local
	log   *slog.Logger

	mu     sync.Mutex // guards what follows, and is held while a cgroup is looked for
	given  *cgroup.Root
	found  *cgroup.Root // by the Host, which closes it
	why    string       // there is none
	looked time.Time    // when that was found out
	probed time.Time
	answer []Reason
}

// NewHost returns a Host. It looks for nothing before that is needed.
func NewHost(opts HostOptions) *Host {
	return &Host{local: opts.Local, given: opts.Cgroup, log: opts.Log}
}

// Options says how the processes of one tool are held.
type Options struct {
	// Limits are the most that a process gets; its Spec may ask for less. What
	// is zero is that of DefaultLimits.
	Limits cgroup.Limits
	// Paths are more folders and files of the machine that a process sees,
	// absolute. One that is not there is left out.
	Paths []string
	// Hidden are folders of the machine, absolute, of which a process sees only
	// what Paths and its Spec name, even if they are among the system's programs.
	Hidden []string
}

// Reason is why this machine cannot hold processes natively.
type Reason struct {
	What string // that cannot be held: "memory, processors and processes", "a root of its own"
	Why  string
	Fix  string
}

func (r Reason) String() string { return r.What + ": " + r.Why + "; " + r.Fix }

// patience is how long what was found missing is taken to be missing still,
// and what was found to be there, to be there.
const patience = 30 * time.Second

// Close gives back what the Host has taken.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found.Close()
	h.found = nil
}

// cells returns where cgroups can be made that bound all; else why not.
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
		open = open[1:] // it is that one
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

// renewed reports whether there may be another Root than one that does not bound
// what it should: the folders of one that the Host found may have been removed.
func (h *Host) renewed(root *cgroup.Root) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case root == h.given:
		return false
	case root != h.found:
		return true // somebody was here
	case !root.Lost():
		return false
	}
	h.log.Warn("somebody removed the cgroup of sandboxes; making another", "cgroup", root.Dir())
	root.Close()
	h.found = nil
	return true
}

// within returns what both allow, of which zero is no word.
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

// bounds reports whether a Root's cgroups bound memory, processors and processes.
func bounds(r *cgroup.Root) bool { return r != nil && len(r.Controllers()) == len(bounded) }

// bounded are the controllers that do.
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
