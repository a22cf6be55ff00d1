package mcpbridge

import (
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
)

// Rules say what callers may call and read (SPEC-TOOLS 8.6).
type Rules interface {
	// Rules returns what holds now; nil if everything is allowed.
	Rules() *rules.Set
	// Changed returns a channel that is closed when something else holds.
	Changed() <-chan struct{}
	// May reports by its error whether a caller may read from a provider. It notes how it has decided, unless noted is nil.
	May(caller rules.Caller, target func() *rules.Target, noted *peer.Noted) error
	// Limits returns how much a caller of some groups may have at one time.
	Limits(caller string, groups []string) rules.Limits
}

// noRules allow everything.
type noRules struct{}

func (noRules) Rules() *rules.Set                                         { return nil }
func (noRules) Changed() <-chan struct{}                                  { return nil }
func (noRules) May(rules.Caller, func() *rules.Target, *peer.Noted) error { return nil }
func (noRules) Limits(string, []string) rules.Limits                      { return rules.Limits{} }

// views are lists without what some callers may not use, each made once for all callers whom the rules treat
// alike.
type views struct {
	mu   sync.Mutex // guards the fields that follow
	set  *rules.Set // whose views they are
	of   map[string]*listed
	size int // bytes of their pages
}

// maxViews bounds the bytes of the pages of views. Beyond that all are dropped, and made again when they are
// asked for.
const maxViews = 64 << 20

// visible returns of a list what the caller of a request may use.
func (b *Bridge) visible(whole *listed, from *client.Origin) *listed {
	set := b.opts.Rules.Rules()
	if set == nil {
		return whole
	}
	caller := callerOf(from)
	key := set.View(caller)
	v := &whole.views
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set != set || v.size > maxViews {
		v.set, v.of, v.size = set, map[string]*listed{}, 0
	}
	view, made := v.of[key]
	if !made {
		view = whole.only(set, caller)
		v.of[key] = view
		v.size += len(key) + view.tools.Size() + view.resources.Size() + view.templates.Size() + view.prompts.Size()
	}
	return view
}

// only returns what a caller may use.
func (l *listed) only(set *rules.Set, caller rules.Caller) *listed {
	reads := map[*rules.Target]bool{nil: true} // of each provider once
	may := func(target *rules.Target) bool {
		is, known := reads[target]
		if !known {
			is = set.Reads(caller, target)
			reads[target] = is
		}
		return is
	}
	return &listed{
		of:        l.of,
		tools:     l.tools.Only(func(t *mcp.Tool) bool { return set.Calls(caller, l.of.Target(t.Name)) }),
		resources: l.resources.Only(func(r *mcp.Resource) bool { return may(l.of.TargetOfResource(r.URI)) }),
		templates: l.templates.Only(func(t *mcp.ResourceTemplate) bool { return may(l.of.TargetOfTemplate(t.URITemplate)) }),
		prompts:   l.prompts.Only(func(p *mcp.Prompt) bool { return may(l.of.TargetOfPrompt(p.Name)) }),
	}
}

// callerOf returns who makes a request, as rules know it.
func callerOf(from *client.Origin) rules.Caller {
	return rules.Caller{Name: from.Caller, Groups: from.Groups}
}
