package mcpbridge

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/supervisor"
)

// follow lists what the catalog has now, and returns it.
func (b *Bridge) follow() *supervisor.Catalog {
	b.listing.Lock()
	defer b.listing.Unlock()
	c := b.catalog.Catalog()
	if c != b.current {
		b.current = c
		b.listToolsLocked(c)
		b.listOthersLocked(c)
	}
	return c
}

// settle waits until the catalog is known to be whole, for what would else be
// missing in an answer (SPEC D7a), and lists it.
func (b *Bridge) settle(ctx context.Context) {
	if !b.catalog.Catalog().Known() {
		b.catalog.Settle(ctx)
	}
	b.follow()
}

// listToolsLocked makes the server's tools those of the catalog. Only what
// differs is touched, so that clients hear of real changes alone.
func (b *Bridge) listToolsLocked(c *supervisor.Catalog) {
	next, changed, gone := compared(b.listed, c.Tools, func(t *mcp.Tool) string { return t.Name })
	b.publishTraits(next) // before a client can hear of it
	failed := false
	for _, t := range changed {
		if err := contain(func() { b.server.AddTool(t, b.callTool) }); err != nil {
			b.log.Error("a tool cannot be listed", "tool", t.Name, "err", err)
			delete(next, t.Name)
			failed = true
		}
	}
	if failed {
		b.publishTraits(next)
	}
	if len(gone) > 0 {
		b.server.RemoveTools(gone...)
	}
	b.listed = next
	listed := make([]*mcp.Tool, 0, len(next))
	for _, name := range slices.Sorted(maps.Keys(next)) {
		listed = append(listed, next[name])
	}
	b.pages.Store(newPages(c, listed))
}

// listOthersLocked makes the server's resources, templates and prompts those of
// the catalog. What the SDK would do with them is never asked of it.
func (b *Bridge) listOthersLocked(c *supervisor.Catalog) {
	b.resources = listed(b, b.resources, c.Resources, func(r *mcp.Resource) string { return r.URI },
		func(r *mcp.Resource) { b.server.AddResource(r, nil) }, b.server.RemoveResources)
	b.templates = listed(b, b.templates, c.Templates, func(t *mcp.ResourceTemplate) string { return t.URITemplate },
		func(t *mcp.ResourceTemplate) { b.server.AddResourceTemplate(t, nil) }, b.server.RemoveResourceTemplates)
	b.prompts = listed(b, b.prompts, c.Prompts, func(p *mcp.Prompt) string { return p.Name },
		func(p *mcp.Prompt) { b.server.AddPrompt(p, nil) }, b.server.RemovePrompts)
}

// listed lists now what differs from old, and returns what is listed.
func listed[T any](b *Bridge, old map[string]*T, now []*T, key func(*T) string, add func(*T), remove func(...string)) map[string]*T {
	next, changed, gone := compared(old, now, key)
	for _, item := range changed {
		if err := contain(func() { add(item) }); err != nil {
			b.log.Error("what a peer offers cannot be listed", "what", key(item), "err", err)
			delete(next, key(item))
			gone = append(gone, key(item))
		}
	}
	if len(gone) > 0 {
		remove(gone...)
	}
	return next
}

func (b *Bridge) publishTraits(tools map[string]*mcp.Tool) {
	known := make(map[string]traits, len(tools))
	for name, t := range tools {
		known[name] = traitsOf(t)
	}
	b.traits.Store(&known)
}

// compared returns what is to be listed, by its key: the old of what has not
// changed. It also returns what has changed or is new, and the keys of what
// has gone.
func compared[T any](old map[string]*T, now []*T, key func(*T) string) (next map[string]*T, changed []*T, gone []string) {
	next = make(map[string]*T, len(now))
	for _, item := range now {
		if before, ok := old[key(item)]; ok && (before == item || reflect.DeepEqual(before, item)) {
			next[key(item)] = before
			continue
		}
		next[key(item)] = item
		changed = append(changed, item)
	}
	for k := range old {
		if _, still := next[k]; !still {
			gone = append(gone, k)
		}
	}
	return next, changed, gone
}

// contain calls add. The SDK panics on what it does not like, which must not be
// in the hands of whoever wrote the tool (SPEC G5b).
func contain(add func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the SDK refuses it: %v", p)
		}
	}()
	add()
	return nil
}
