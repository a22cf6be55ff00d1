package pins

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// Provider has the pins of one provider. Its methods may be called from any goroutine; a nil *Provider pins
// nothing.
type Provider struct {
	store *Store
	name  string // of its manifest
	path  string // of its file

	mu     sync.Mutex // guards the fields that follow
	source string     // its manifest, absolute
	hold   bool       // what is not accepted is not served
	ledger
	last
	told  map[item]Digest // what the log has said of items that are not accepted
	spare brief.Limiter   // of the log
}

// last is what a Provider knows of the last list.
type last struct {
	listed map[item]*listedItem
	names  map[Kind]map[string]string // for clients, by the provider's own
	held   *Held                      // nil when it has to be found again
	open   int                        // how many of the list are not accepted
}

// ledger is what a Provider knows of its file.
type ledger struct {
	accepted map[item]Digest    // nil until there is a first list
	stored   bool               // accepted is in the file
	read     stamp              // the version of the file that accepted is of
	common   documents.Document // the same of what all replicas have
	trouble  error              // why the file cannot be read or written; nil if it can
	unread   bool               // trouble is that it cannot be read
}

// listedItem is one item of a list.
type listedItem struct {
	tool   *mcp.Tool   // nil for a prompt
	prompt *mcp.Prompt // nil for a tool
	digest Digest
	state  State
}

// State is what is known of a definition.
type State string

// The states.
const (
	Accepted State = "accepted"
	Changed  State = "changed" // another definition of the same name was accepted
	New      State = "new"     // none of its name was accepted
	Unknown  State = "unknown" // what was accepted cannot be read
)

// byFirstList is who accepted the definitions of the first list.
const byFirstList = "first list"

// Compare takes the list of a provider: its tools and prompts by its own names, which must not be modified later.
// It returns what must not be served of them. The first list that is not empty is accepted. What is listed
// and not accepted stays so until Approve. Named has to follow.
func (p *Provider) Compare(tools map[string]*mcp.Tool, prompts map[string]*mcp.Prompt) *Held {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list(tools, prompts)
	p.refresh()
	if len(p.listed) > 0 && !p.stored {
		p.begin()
	}
	if p.held == nil {
		p.judge()
	}
	return p.held
}

// judge sets the states of what is listed, and what is held.
func (p *Provider) judge() {
	p.held, p.open = &Held{of: p.name, items: map[item]State{}}, 0
	if p.hold {
		p.held.unusable = p.trouble
	}
	for i, one := range p.listed {
		if one.state = p.stateOf(i, one.digest); one.state == Accepted {
			continue
		}
		p.open++
		if p.hold {
			p.held.items[i] = one.state
		}
	}
}

// Held is what must not be served of a list. It is never changed. A nil *Held holds nothing.
type Held struct {
	of       string // the name of the provider
	items    map[item]State
	unusable error
}

// Unusable returns why nothing of the provider may be served; nil if some of it may.
func (h *Held) Unusable() error {
	if h == nil {
		return nil
	}
	return h.unusable
}

// State returns whether an item is held, and its state.
func (h *Held) State(kind Kind, own string) (state State, held bool) {
	if h == nil {
		return "", false
	}
	state, held = h.items[item{kind, own}]
	return state, held
}

// Refusal is the error of a call of an item that is held. shown is what clients would call it.
func (h *Held) Refusal(kind Kind, own, shown string) error {
	shown = brief.Cut(shown, maxShown)
	switch h.items[item{kind, own}] {
	case Changed:
		return fault.New(fault.PermissionDenied, "tool_permission_denied: the definition of the %s %s has changed since it was accepted; "+
			"the operator looks at it with orla pins diff %[2]s, and accepts it with orla pins approve %[2]s", kind, shown)
	case New:
		return fault.New(fault.PermissionDenied, "tool_permission_denied: the %s %s is new since the list of %s was accepted; "+
			"the operator looks at it with orla pins diff %[2]s, and accepts it with orla pins approve %[2]s", kind, shown, h.of)
	case Accepted, Unknown, Absent:
	}
	return fault.New(fault.PermissionDenied, "tool_permission_denied: the accepted definitions of %s cannot be read or stored, and nothing of it is served; "+
		"the operator finds the reason with orla status", h.of)
}

// list makes the digests of a list. Those of what has not changed are known.
func (p *Provider) list(tools map[string]*mcp.Tool, prompts map[string]*mcp.Prompt) {
	var changed []item
	for name, t := range tools {
		i := item{Tool, name}
		if old := p.listed[i]; old != nil && sameTool(old.tool, t) {
			old.tool = t // the last one need not stay in memory
		} else {
			changed = append(changed, i)
		}
	}
	for name, t := range prompts {
		i := item{Prompt, name}
		if old := p.listed[i]; old != nil && samePrompt(old.prompt, t) {
			old.prompt = t
		} else {
			changed = append(changed, i)
		}
	}
	if len(changed) == 0 && len(tools)+len(prompts) == len(p.listed) {
		return
	}
	p.held = nil
	if p.listed == nil {
		p.listed = make(map[item]*listedItem, len(tools)+len(prompts))
	}
	d := &definer{}
	for _, i := range changed {
		one := &listedItem{}
		if i.kind == Tool {
			one.tool = tools[i.name]
		} else {
			one.prompt = prompts[i.name]
		}
		one.digest = one.define(d, i.name).digest
		p.listed[i] = one
	}
	if len(tools)+len(prompts) == len(p.listed) {
		return
	}
	for i := range p.listed {
		listed := tools[i.name] != nil
		if i.kind == Prompt {
			listed = prompts[i.name] != nil
		}
		if !listed {
			delete(p.listed, i)
		}
	}
}

// refresh reads the file if another version of it is there than the one that is known.
func (p *Provider) refresh() {
	if p.store.common != nil {
		p.refreshCommon()
		return
	}
	if p.store.dir == "" {
		return
	}
	info, err := os.Lstat(p.path) // a link that leads nowhere is not an absent file
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if p.unread { // and somebody has removed it
			p.trouble, p.unread, p.read, p.held = nil, false, stamp{}, nil
		}
		return // what was accepted stays so while Orla runs
	case err == nil && p.read.same(info):
		return
	}
	var f *file
	if err == nil {
		f, err = readFile(p.path)
		p.read = stamp{info}
	}
	if err != nil {
		p.unread = true
		p.fail(fmt.Errorf("%s cannot be read: %w", p.path, err))
		return
	}
	p.adopt(f)
}

// adopt takes over what a file says.
func (p *Provider) adopt(f *file) {
	p.accepted = make(map[item]Digest, len(f.Tools)+len(f.Prompts))
	f.each(func(i item, k kept) { p.accepted[i] = k.Digest })
	p.stored, p.trouble, p.unread, p.held = true, nil, false, nil
}

// fail notes why the file cannot be used. The log is told when that is new.
func (p *Provider) fail(err error) {
	if p.trouble == nil || p.trouble.Error() != err.Error() {
		p.store.log.Error("the pins of a provider cannot be read or written", "tool", p.name, "path", p.path, "err", err, "served", !p.hold)
	}
	p.trouble, p.held = err, nil
}

// begin accepts the first list, unless a file says already what is accepted.
func (p *Provider) begin() {
	if p.unread {
		return
	}
	if !p.store.frozen {
		f, err := p.change(false, func(f *file) {
			if len(f.Tools)+len(f.Prompts) == 0 { // no other process was first
				p.acceptFirst(f)
			}
		})
		if err == nil {
			p.adopt(f)
			return
		}
		if p.hold || p.store.keeps() {
			p.fail(fmt.Errorf("%s cannot be written: %w", p.path, err))
		}
	}
	if p.accepted == nil && (!p.hold || p.store.frozen) {
		p.accepted, p.held = make(map[item]Digest, len(p.listed)), nil
		for i, one := range p.listed {
			p.accepted[i] = one.digest
		}
	}
}

// acceptFirst puts the definitions of the first list into a file: those of the last one, unless an earlier one could
// not be stored.
func (p *Provider) acceptFirst(f *file) {
	if p.accepted == nil {
		for i := range p.listed {
			p.accept(f, i, byFirstList)
		}
	}
	for i, digest := range p.accepted {
		if one := p.listed[i]; one != nil && one.digest == digest {
			p.accept(f, i, byFirstList)
		} else {
			f.of(i.kind)[i.name] = kept{Digest: digest, Accepted: today(), By: byFirstList}
		}
	}
}

// today is the time of an acceptance.
func today() time.Time { return time.Now().UTC().Truncate(time.Second) }

// accept puts the definition of what is listed now into a file.
func (p *Provider) accept(f *file, i item, by string) {
	k := kept{Digest: p.listed[i].digest, Accepted: today(), By: by}
	if now := p.listed[i].define(&definer{}, i.name); now.canonical && len(now.text) <= maxKept {
		k.Definition = now.text
	}
	f.of(i.kind)[i.name] = k
}

// define returns the definition of an item.
func (one *listedItem) define(d *definer, own string) definition {
	if one.tool != nil {
		return d.tool(one.tool, own)
	}
	return d.prompt(one.prompt, own)
}

func (p *Provider) stateOf(i item, now Digest) State {
	accepted, known := p.accepted[i]
	switch {
	case p.trouble != nil && (p.hold || p.accepted == nil):
		return Unknown
	case !known:
		return New
	case accepted != now:
		return Changed
	}
	return Accepted
}

// Troubled reports whether what is accepted could not be read or stored, which may be over by the next Compare.
func (p *Provider) Troubled() bool {
	if p == nil || !p.store.keeps() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble != nil
}

// Waits reports whether nothing of the provider may be used before its list is known.
func (p *Provider) Waits() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

// Named says what clients call the items of the last list, or would if they were served: by the provider's own names.
func (p *Provider) Named(tools, prompts map[string]string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = map[Kind]map[string]string{Tool: tools, Prompt: prompts}
	p.tell()
}

// shown returns the name that clients have for an item, or would have.
func (p *Provider) shown(i item) string {
	return cmp.Or(p.names[i.kind][i.name], manifest.Dashed(p.name)+"--"+manifest.Dashed(i.name))
}

// maxShown bounds a name in the log and in errors, in bytes.
const maxShown = 200

// tell logs what is listed and not accepted, each definition once.
func (p *Provider) tell() {
	if p.open == 0 {
		p.told = nil
		return
	}
	told := map[item]Digest{}
	for i, one := range p.listed {
		if one.state != Changed && one.state != New {
			continue
		}
		told[i] = one.digest
		if p.told[i] == one.digest {
			continue
		}
		if shown, left := p.spare.Allow(maxLines); shown {
			p.store.log.Warn("a definition is not the accepted one", "tool", p.name, "kind", i.kind, "name", brief.Cut(p.shown(i), maxShown),
				"change", one.state, "served", !p.hold, "digest", one.digest.String(), "not_shown", left)
		}
	}
	p.told = told
}

// maxLines is how many such lines are logged in a minute of one provider.
const maxLines = 100
