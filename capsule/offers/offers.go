// Package offers holds what a capsule offers to clients: the lists that it sent, checked,
// and under the names that clients use.
package offers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// Offering is what a capsule offers to clients, under the names that they use (SPEC D7). Its methods may be called from any goroutine.
type Offering struct {
	tool    manifest.Tool
	lists   *records.Lists
	pins    *pins.Provider // nil if nothing is pinned
	log     *slog.Logger
	current atomic.Pointer[named]

	mu       sync.Mutex // one change at a time
	changed  chan struct{}
	said     *records.Offered // nil until it has said something, in this life or an earlier one
	tools    readTools        // of said
	heard    time.Time        // when a process said what it offers the last time; zero if none did
	expected bool             // the wait for it was begun once more
}

// named are offers, and the capsule's own names behind those of clients.
type named struct {
	peer.Offers

	tools, prompts map[string]string
	// originals are all tools that it listed, by its own names and under these.
	originals map[string]*mcp.Tool
	held      *pins.Held
	shown     map[string]string // the names of tools for clients, by the capsule's own, also of held ones
}

// New publishes what is known before the first start: what the manifest
// declares, or what the capsule said the last time (SPEC D7a). An update has
// another version in the place of one that served: its tools stay until it has
// said what it offers itself.
func New(tool manifest.Tool, lists *records.Lists, pinned *pins.Store, log *slog.Logger) *Offering {
	o := &Offering{tool: tool, lists: lists, pins: pinned.Of(tool), log: log}
	said, known := lists.Load(tool)
	was := known
	if !known {
		said, was = lists.Earlier(tool)
	}
	if was {
		o.said = &said
	}
	o.publish(known || tool.Runtime.Declared)
	return o
}

// Current returns what is offered now.
func (o *Offering) Current() *peer.Offers { return &o.current.Load().Offers }

// maxNamed is how many tools a line of the log names.
const maxNamed = 20

// Set takes what the capsule says now.
func (o *Offering) Set(said records.Offered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.heard = time.Now() }()
	before := o.current.Load()
	same := o.said != nil && reflect.DeepEqual(*o.said, said) && before.Known
	if same && before.held.Unusable() == nil && !o.pins.Troubled() {
		return
	}
	o.said = &said
	o.publishLocked(true)
	if same && o.pins.Troubled() { // as it is every few seconds
		return
	}
	now := o.current.Load()
	toolNames := make([]string, 0, min(len(now.Tools), maxNamed))
	for _, t := range now.Tools {
		if len(toolNames) == maxNamed {
			toolNames = append(toolNames, "…")
			break
		}
		toolNames = append(toolNames, t.Name)
	}
	o.warnOfMissing(now)
	o.warnOfRenamed(before, now)
	o.log.Info("offers", "tool", o.tool.Name, "tools", toolNames, "resources", len(now.Resources),
		"templates", len(now.Templates), "prompts", len(now.Prompts))
	if !o.tool.Runtime.Declared {
		o.lists.Save(o.tool, said, o.log)
	}
}

// Last is what the capsule said last; nothing if it never did.
func (o *Offering) Last() records.Offered {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said == nil {
		return records.Offered{}
	}
	return *o.said
}

// GiveUp ends the wait for the lists of the capsule.
func (o *Offering) GiveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.current.Load().Known {
		o.publishLocked(true)
	}
}

// Expect begins to wait for the lists once more, if the wait was given up: the capsule is READY now, and about to say for
// the first time what it offers. It reports whether that is so. It does so once: one that always ends before it says anything would
// have everybody wait at each start (SPEC N2).
func (o *Offering) Expect() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.expected || !o.current.Load().Silent {
		return false
	}
	o.expected = true
	o.publishLocked(false)
	return true
}

// GiveUpAfter calls GiveUp after a time, unless the lists are known or ctx ends before.
func (o *Offering) GiveUpAfter(ctx context.Context, wait time.Duration) {
	if o.current.Load().Known {
		return
	}
	if pace.Sleep(ctx, wait) {
		o.GiveUp()
	}
}

func (o *Offering) publish(known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.publishLocked(known)
}

func (o *Offering) publishLocked(known bool) {
	next := o.named()
	next.Known = known
	next.Silent = known && o.said == nil && !o.tool.Runtime.Declared
	changed := make(chan struct{})
	next.Changed = changed
	old := o.changed
	o.changed = changed
	o.current.Store(next)
	if old != nil {
		close(old)
	}
}

// named returns what the capsule offers, under the names that clients use.
func (o *Offering) named() *named {
	t := o.tool
	n := &named{Offers: peer.Offers{Talks: true}, tools: map[string]string{}, prompts: map[string]string{}}
	said := o.said
	if said != nil && !t.Runtime.Declared {
		n.Reads, n.Completes, n.Logs = said.Reads, said.Completes, said.Logs
		n.Resources = decoded[mcp.Resource](o, said.Resources, func(r *mcp.Resource) bool { return r.URI != "" && r.Name != "" })
		n.Templates = o.templates(said.Templates)
		seen := map[string]bool{"": true}
		n.Prompts = decoded[mcp.Prompt](o, said.Prompts, func(p *mcp.Prompt) bool {
			twice := seen[p.Name]
			seen[p.Name] = true
			return !twice
		})
		n.originals = map[string]*mcp.Tool{}
		n.Tools = included(t, o.readTools(said.Tools), n.originals)
		n.held = o.pins.Compare(n.originals, copies(n.Prompts))
		o.name(n)
	}
	switch {
	case len(n.Tools)+len(n.Withheld) > 0 || !o.plain(said):
	case n.held.Unusable() != nil:
		n.Withheld = []peer.Withheld{{Name: t.Name, Tool: t.Listed(), Why: n.held.Refusal(pins.Tool, "", t.Name)}}
	default:
		n.Tools = []*mcp.Tool{t.Listed()}
		n.tools[t.Name] = t.Name
	}
	return n
}

// copies returns prompts by their names, which are the capsule's own.
func copies(prompts []*mcp.Prompt) map[string]*mcp.Prompt {
	all := make(map[string]*mcp.Prompt, len(prompts))
	for _, p := range prompts {
		own := *p
		all[p.Name] = &own
	}
	return all
}

// included returns copies of the tools that the manifest includes, which may be renamed. It keeps every listed tool
// in originals.
func included(t manifest.Tool, listed []*mcp.Tool, originals map[string]*mcp.Tool) (served []*mcp.Tool) {
	wanted := make(map[string]bool, len(t.Runtime.Include))
	for _, name := range t.Runtime.Include {
		wanted[name] = true
	}
	for _, tool := range listed {
		originals[tool.Name] = tool
		if t.Runtime.Include == nil || wanted[tool.Name] {
			own := *tool
			served = append(served, &own)
		}
	}
	return served
}

// warnOfMissing says which tools the manifest includes that the capsule does not have.
func (o *Offering) warnOfMissing(now *named) {
	var missing []string
	for _, name := range o.tool.Runtime.Include {
		if now.originals[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		o.log.Warn("tools are included that the server does not have", "tool", o.tool.Name, "missing", missing)
	}
}

// warnOfRenamed says which tools clients know by another name: the only tool of a capsule
// has the capsule's name, or its own, and each of several a prefix (SPEC D7).
func (o *Offering) warnOfRenamed(before, now *named) {
	names := map[string]string{} // by the capsule's own
	for name, own := range before.tools {
		names[own] = name
	}
	for _, listed := range now.Tools {
		name := listed.Name
		if had := names[now.tools[name]]; had != "" && had != name {
			o.log.Warn("a tool has another name now, and clients that know the old one lose it", "tool", o.tool.Name,
				"from", had, "to", name, "hint", `runtime.tool_prefix in the manifest chooses names that stay; "" leaves the prefix out`)
		}
	}
}

// plain reports whether the capsule is one tool with the capsule's name: its manifest
// declares the tool, or it does not speak MCP and has listed nothing.
func (o *Offering) plain(said *records.Offered) bool {
	r := o.tool.Runtime
	switch {
	case r.Declared:
		return true
	case r.Handshake == manifest.HandshakeMCP:
		return false
	case said == nil:
		return o.current.Load() != nil // the waiting is over
	}
	return len(said.Resources)+len(said.Templates)+len(said.Prompts) == 0
}

// decoded decodes the items of a list. It leaves out invalid items and logs how many.
func decoded[T any](o *Offering, raw []json.RawMessage, good func(*T) bool) []*T {
	var list []*T
	var left leftOut
	for _, item := range raw {
		t := new(T)
		if _, _, err := read(item, t, meta(t)); err != nil || !good(t) {
			left.count(err)
			continue
		}
		list = append(list, t)
	}
	left.logTo(o, fmt.Sprintf("%T", *new(T)))
	return list
}

// maxTemplates bounds the resource templates of a capsule: a URI may have to be compared
// with each of them.
const maxTemplates = 256

// templates reads and compiles a list of resource templates.
func (o *Offering) templates(raw []json.RawMessage) []peer.Template {
	all := decoded[mcp.ResourceTemplate](o, raw, func(r *mcp.ResourceTemplate) bool { return r.URITemplate != "" && r.Name != "" })
	if len(all) > maxTemplates {
		o.log.Warn("a capsule lists more than Orla serves", "tool", o.tool.Name, "method", "resources/templates/list", "most", maxTemplates)
		all = all[:maxTemplates]
	}
	var left leftOut
	compiled := peer.Templates(all, func(_ *mcp.ResourceTemplate, err error) { left.count(err) })
	left.logTo(o, "URI template")
	return compiled
}

// leftOut counts the items that are left out of a list, for one line of the log.
type leftOut struct {
	n     int
	first error
}

func (l *leftOut) count(err error) {
	if err == nil {
		err = errors.New("something that it must have is missing, or there twice")
	}
	l.n++
	if l.first == nil {
		l.first = err
	}
}

func (l *leftOut) logTo(o *Offering, kind string) {
	if l.n > 0 {
		o.log.Warn("a capsule lists something that does not have MCP's form; it is left out", "tool", o.tool.Name, "kind", kind, "count", l.n, "err", brief.Cut(l.first.Error(), maxReason))
	}
}

// maxReason bounds what is quoted of why something is left out, in bytes.
const maxReason = 4 << 10

func ownNames[T any](list []*T, name func(*T) string) []string {
	own := make([]string, len(list))
	for i, item := range list {
		own[i] = name(item)
	}
	return own
}

// Troubled reports whether what is pinned could not be read or stored: Set is to be called again after a while, whatever the
// capsule says then.
func (o *Offering) Troubled() bool { return o.pins.Troubled() }

// Review compares the last list with what is accepted now.
func (o *Offering) Review() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said != nil {
		o.publishLocked(o.current.Load().Known)
	}
}

// Withholds returns why a tool must not be called by the capsule's own name for it; nil if it may be.
func (o *Offering) Withholds(own string) error {
	now := o.current.Load()
	if now.originals == nil && o.pins.Waits() {
		return fault.New(fault.NotReady, "%s has not said yet what it offers, and its tools are not called before that; try again", o.tool.Name)
	}
	if _, held := now.held.State(pins.Tool, own); held {
		return now.held.Refusal(pins.Tool, own, cmp.Or(now.shown[own], manifest.Dashed(o.tool.Name)+"--"+manifest.Dashed(own)))
	}
	return nil
}

// Original returns a tool as the capsule itself listed it, by its own name for
// it, whether it is served under a name of the capsule's or not. known is false
// while the capsule has not said what it offers. The tool must not be modified.
func (o *Offering) Original(name string) (tool *mcp.Tool, known bool) {
	now := o.current.Load()
	return now.originals[name], now.originals != nil
}

// OwnTool is the capsule's own name of a tool.
func (o *Offering) OwnTool(name string) string {
	if own, ok := o.current.Load().tools[name]; ok {
		return own
	}
	return name
}

// OwnPrompt puts the capsule's own name of a prompt into the params of
// prompts/get or completion/complete. All else in them stays the bytes that it is.
func (o *Offering) OwnPrompt(params json.RawMessage) json.RawMessage {
	if named, ok := o.ownName(params); ok {
		params = named
	}
	if ref, ok := o.ownName(member(params, "ref")); ok {
		params = rawjson.Set(params, "ref", ref)
	}
	return params
}

// ownName puts the capsule's own name of a prompt into an object. It reports false if the object has no
// such name.
func (o *Offering) ownName(object json.RawMessage) (named json.RawMessage, ok bool) {
	var name string
	if value := member(object, "name"); value == nil || json.Unmarshal(value, &name) != nil {
		return nil, false
	}
	own, ok := o.current.Load().prompts[name]
	if !ok {
		return nil, false
	}
	return rawjson.Set(object, "name", rawjson.Quote(own)), true
}

// member returns the last member of an object with a key; nil for none, and of what is not an object.
func member(object json.RawMessage, key string) (found json.RawMessage) {
	if !rawjson.IsObject(object) {
		return nil
	}
	rawjson.AllMembers(object, func(its []byte, value json.RawMessage) bool {
		if string(its) == key {
			found = value
		}
		return true
	})
	return found
}
