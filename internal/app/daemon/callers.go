package daemon

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/supervisor"
)

const (
	// maxStrangers bounds the callers in the status that are not in the configuration: an issuer may have many.
	maxStrangers = 1000
	// maxDecisions bounds the decisions that one status makes to count tools. The next status goes on.
	maxDecisions = 200_000
)

// callable counts the tools that callers may call, each caller once for as long as rules and tools are the same.
type callable struct {
	mu    sync.Mutex // guards the fields that follow
	set   *rules.Set
	of    *supervisor.Catalog
	tools map[string]int // by the key of the caller
}

// entryKey identifies an entry of callers, or a caller without one.
func entryKey(c *control.CallerStatus) string { return c.Name + "\x00" + c.Group }

// count fills in how many tools the callers may call, as far as that is known or takes no more than maxDecisions.
func (n *callable) count(set *rules.Set, of *supervisor.Catalog, callers []control.CallerStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set != set || n.of != of {
		n.set, n.of, n.tools = set, of, map[string]int{}
	}
	left := maxDecisions
	for i := range callers {
		c := &callers[i]
		tools, known := n.tools[entryKey(c)]
		if !known && left > 0 {
			left -= len(of.Tools)
			caller := rules.Caller{Name: c.Name}
			if c.Group != "" {
				caller.Groups = []string{c.Group}
			}
			for _, tool := range of.Tools {
				if set.Calls(caller, of.Target(tool.Name)) {
					tools++
				}
			}
			known = true
			if c.Configured {
				n.tools[entryKey(c)] = tools
			}
		}
		if known {
			c.Tools = &tools
		}
	}
}

// callerStatuses returns who may do what, and what they use: those in the configuration, and those that use
// something now. It is nil without rules.
func (o operations) callerStatuses(cfg *config.Loaded) []control.CallerStatus {
	set := o.Governance.Readable()
	if set == nil {
		return nil
	}
	list := configuredCallers(cfg)
	calls, held, sessions := o.Governance.InFlight(), o.bridge.HeldByCallers(), map[string]int{}
	if o.http != nil {
		sessions = o.http.SessionsOf()
	}
	known := map[string]bool{}
	for i := range list {
		known[list[i].Name] = true
	}
	strangers := map[string]bool{}
	for _, names := range [][]string{slices.Collect(maps.Keys(calls)), slices.Collect(maps.Keys(sessions)), slices.Collect(maps.Keys(held.Subscriptions)), slices.Collect(maps.Keys(held.Kept))} {
		for _, name := range names {
			if name != "" && !known[name] {
				strangers[name] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(strangers))
	for _, name := range names[:min(len(names), maxStrangers)] {
		list = append(list, control.CallerStatus{Name: name})
	}
	for i := range list {
		if c := &list[i]; c.Name != "" {
			c.InFlight, c.Sessions, c.Subscriptions, c.KeptBytes = calls[c.Name], sessions[c.Name], held.Subscriptions[c.Name], held.Kept[c.Name]
		}
	}
	if !o.Governance.Denies() {
		o.callable.count(set, o.Supervisor.Catalog(), list)
	} else {
		for i := range list {
			list[i].Tools = new(int)
		}
	}
	return list
}

// configuredCallers are the entries of callers, and the tokens without one.
func configuredCallers(cfg *config.Loaded) []control.CallerStatus {
	list := []control.CallerStatus{}
	names := map[string]bool{}
	for _, c := range cfg.Callers {
		l := c.Limits
		one := control.CallerStatus{
			Name: c.Name, Group: c.Group, Configured: true, Roles: c.Roles, Toolsets: c.Toolsets, MaySpeakFor: c.MaySpeakFor,
			Limits: control.CallerLimits{
				CallsInFlight: l.CallsInFlight, CallsPerMinute: l.CallsPerMinute,
				Sessions: l.Sessions, Subscriptions: l.Subscriptions, KeptMemory: int64(l.KeptMemory),
			},
		}
		names[c.Name] = true
		list = append(list, one)
	}
	for _, t := range cfg.Auth.Tokens {
		if !names[t.Name] {
			list = append(list, control.CallerStatus{Name: t.Name, Configured: true})
		}
	}
	slices.SortStableFunc(list, func(a, b control.CallerStatus) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name)) // callers, then groups
	})
	return list
}
