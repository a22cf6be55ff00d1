// Package governance holds the rules that are in force, and is the one gate that every call and every request
// passes (SPEC-TOOLS 8.3). What the rules say is decided in package rules.
package governance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// Gate decides whether a call may be made. Its methods may be called from any goroutine.
type Gate struct {
	// Partial says that not all tools are there: rules may name others. Set it before the first use.
	Partial bool
	// Memory is the file for what has to be known at the next start; "" for none. Set it before the first use.
	Memory string
	// Log is told of rules that name nothing, once all tools are known. If nil, nobody is.
	Log *slog.Logger
	// Open opens the Store for calls that need an approval, when rules want that for the first time. If
	// nil, nobody can be asked, and such calls are denied.
	Open func() (*approvals.Store, error)

	state  atomic.Pointer[state]
	desk   atomic.Pointer[desk] // nil before the first rule that wants approvals
	limits limiter

	mu        sync.Mutex // guards the fields that follow
	documents []manifest.Problem
	naming
	from source // of the rules in force
	epoch
}

// epoch is the time during which the same rules are in force.
type epoch struct {
	until  context.Context    //nolint:containedctx // ends with it; nil while nobody waits for that
	change context.CancelFunc // of until
}

// naming is what is known of the names in rules.
type naming struct {
	unnamed map[string]rules.Fault // what no tool has been called by yet, by the folded name
	known   bool                   // all tools are
	told    map[rules.Fault]bool   // those of unnamed that are in the log

	referenced map[string]bool // the folded names of tools in rules
	memory
}

// state is what holds at one moment.
type state struct {
	set     *rules.Set
	shown   *rules.Set // set, or what denies everything
	version string     // of set, for approvals
	closed  bool       // every call is denied
	limits  map[string]config.LimitsConfig
	groups  map[string]config.LimitsConfig
}

var open = &state{}

// source is what a rules.Set is made of.
type source struct {
	documents manifest.Rules
	bindings  []rules.Binding
	toolsets  []rules.Toolset
}

// Documents returns the governance documents in force.
func (g *Gate) Documents() manifest.Rules {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.from.documents
}

func (g *Gate) now() *state {
	if s := g.state.Load(); s != nil {
		return s
	}
	return open
}

// Denies reports whether every call is denied.
func (g *Gate) Denies() bool { return g.now().closed }

// Rules returns the rules that are in force; nil if there are none. While every call is denied, they deny everything, so that
// no list has what a document may hide that cannot be read (SPEC-TOOLS 8.6).
func (g *Gate) Rules() *rules.Set { return g.now().shown }

// Readable returns the rules that could be read, also while every call is denied; nil if there are none.
func (g *Gate) Readable() *rules.Set { return g.now().set }

// Changed returns a channel that is closed when other rules are in force, or every call is denied.
func (g *Gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.untilLocked().Done()
}

// untilLocked returns a context that ends when other rules are in force.
func (g *Gate) untilLocked() context.Context {
	if g.until == nil {
		g.until, g.change = context.WithCancel(context.Background())
	}
	return g.until
}

// errClosed is what callers get while every call is denied. It does not say what the documents contain.
var errClosed = fault.New(fault.PermissionDenied,
	"tool_permission_denied: every call is denied, since a governance document cannot be read or names nothing; the operator finds it with orla status")

// Set puts the rules of a search and of a configuration into force. Listed has to follow, when the tools that
// were found are served. A document whose folder cannot be read
// stays in force, and is added to the problems.
func (g *Gate) Set(found *manifest.Result, cfg *config.Loaded) {
	bindings, toolsets := bindingsOf(cfg)
	next := &state{}
	next.limits, next.groups = limitsOf(cfg)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recallLocked()
	if from := (source{found.Rules, bindings, toolsets}); reflect.DeepEqual(from, g.from) {
		next.set, next.version = g.now().set, g.now().version
	} else {
		next.set, next.version, g.from = rules.New(found.Rules, bindings, toolsets), from.version(), from
	}
	g.findFilesLocked(found, cfg)
	documents := slices.DeleteFunc(slices.Clone(found.Problems), func(p manifest.Problem) bool { return !p.Denies })
	for _, old := range g.documents {
		unread := func(p manifest.Problem) bool {
			return p.Unreadable() && strings.HasPrefix(old.Path, p.Path+string(filepath.Separator))
		}
		if slices.ContainsFunc(found.Problems, unread) {
			addOnce(&documents, old)
			addOnce(&found.Problems, old)
		}
	}
	g.documents = documents
	g.unnamed, g.referenced, g.known = map[string]rules.Fault{}, map[string]bool{}, g.known && g.now().closed // what is closed opens in Listed
	if !g.Partial && next.set != nil {
		all := namesOf(found.Tools)
		for _, f := range next.set.Nameless(rules.Known{Tool: func(name string) bool {
			g.referenced[name] = true
			return g.seen[name] || all.tools[name]
		}}) {
			if f.Tool != "" {
				g.unnamed[f.Tool] = f
			}
		}
	}
	g.publish(next)
	g.saveLocked()
}

// version distinguishes rules, also from those of another process.
func (s source) version() string {
	raw, err := json.Marshal([]any{s.documents, s.bindings, s.toolsets})
	if err != nil { // texts, numbers and lists of them
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// addOnce adds a problem that is not there.
func addOnce(all *[]manifest.Problem, p manifest.Problem) {
	same := func(other manifest.Problem) bool { return other.Path == p.Path && other.Err.Error() == p.Err.Error() }
	if !slices.ContainsFunc(*all, same) {
		*all = append(*all, p)
	}
}

// publish puts a state into force. The caller holds mu.
func (g *Gate) publish(next *state) {
	before := g.now()
	next.closed = len(g.documents) > 0 || g.known && len(g.unnamed) > 0
	switch {
	case !next.closed:
		next.shown = next.set
	case before.closed:
		next.shown = before.shown
	default:
		next.shown = rules.Closed(before.set, g.state.Load() != nil)
	}
	g.state.Store(next)
	g.approveUnder(next)
	if (before.set != next.set || before.closed != next.closed) && g.until != nil {
		g.change()
		g.until = nil
	}
}

// Listed tells the gate of the tools that can be called: a rule may name one that only its provider knows of.
func (g *Gate) Listed(c *supervisor.Catalog) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recallLocked()
	g.accepted = nil
	for name := range g.unnamed {
		if c.Named(name) {
			g.seen[name] = true
			delete(g.unnamed, name)
		}
	}
	g.saveLocked()
	g.known = c.Told()
	s := *g.now()
	if s.closed || len(g.unnamed) > 0 {
		g.publish(&s)
		g.tell(s.closed)
	}
}

// tell logs which rules name nothing, each once for as long as it does, but for those that are among the problems of a search, which
// are logged. The caller holds mu.
func (g *Gate) tell(closed bool) {
	told, logged := map[rules.Fault]bool{}, map[string]bool{}
	for _, p := range g.documents {
		if f, is := errors.AsType[rules.Fault](p.Err); is {
			logged[f.At] = true
		}
	}
	for _, f := range g.unnamed {
		known := g.told[f] || logged[f.At]
		if closed && !known && g.Log != nil {
			g.Log.Error("every call is denied: a rule names nothing", "err", f)
		}
		told[f] = closed || known
	}
	g.told = told
}

// Problems are the rules that name nothing, as far as only the providers know that.
func (g *Gate) Problems() (list []manifest.Problem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.known {
		return nil
	}
	for _, f := range g.unnamed {
		list = append(list, problemOf(f))
	}
	return list
}

// metaTask is the key in _meta with which a client names the task that its call is a part of (SPEC-TOOLS 2.1).
const metaTask = "orloj.dev/task"

// Admit is for supervisor.Options.
func (g *Gate) Admit(_ context.Context, call peer.Call, target *rules.Target) (supervisor.Admitted, error) {
	s := g.now()
	if s.closed {
		return supervisor.Admitted{}, errClosed
	}
	caller := rules.Caller{Name: call.Caller, Groups: call.Groups, Task: call.Task, Agent: rules.AgentIn(call.Meta)}
	judge := &rejudged{gate: g, decided: call.Decided, caller: caller, tool: call.Tool, by: s.set, target: target}
	if s.set == nil { // the first rules are for calls that wait, too
		return supervisor.Admitted{Judge: judge}, nil
	}
	d := s.set.Decide(caller, target)
	if call.Decided != nil {
		*call.Decided = peer.Decision{Class: classOf(d, target), Rule: d.Rule, Verdict: string(d.Verdict)}
	}
	switch d.Verdict {
	case manifest.Deny:
		return supervisor.Admitted{}, refusal(call.Caller, call.Tool)
	case manifest.ApprovalRequired:
		return g.asking(s, caller, &call, target)
	case manifest.Allow:
	}
	use, err := g.limits.enter(s, call.Caller, call.Groups, uncounted)
	if err != nil {
		return supervisor.Admitted{}, err
	}
	return supervisor.Admitted{Done: func(bool) { g.limits.leave(use) }, Judge: judge}, nil
}

// classOf is the class that a decision is about: that of its rule, or else what a call of the target does.
func classOf(d rules.Decision, target *rules.Target) string {
	if d.Class != "" && d.Class != "*" {
		return string(d.Class)
	}
	var all []string
	for _, c := range target.Classes() {
		all = append(all, string(c))
	}
	return strings.Join(all, ",")
}

// AdmitRequest is for supervisor.Options.
func (g *Gate) AdmitRequest(_ context.Context, req peer.Request, target func() *rules.Target) error {
	return g.May(rules.Caller{Name: req.Caller, Groups: req.Groups, Task: req.Task, Agent: rules.AgentIn(req.Meta)}, target, req.Noted)
}

// May reports by its error whether a caller may use a provider, other than by a call, and notes how it has decided. One that is
// not served any more has no target, and answers nothing. A request of Orla itself has no caller.
func (g *Gate) May(caller rules.Caller, target func() *rules.Target, noted *peer.Noted) error {
	s := g.now()
	if s.closed {
		noted.Set(peer.Decision{Verdict: string(manifest.Deny)})
		return errClosed
	}
	var t *rules.Target
	if s.set != nil && caller.Name != "" {
		t = target()
	}
	if t == nil {
		noted.Set(peer.Decision{Verdict: string(manifest.Allow)})
		return nil
	}
	d, verdict := s.set.DecideRequest(caller, t), manifest.Allow // nobody is asked before something is read
	if d.Verdict == manifest.Deny {
		verdict = manifest.Deny
	}
	if noted != nil {
		noted.Set(peer.Decision{Class: classOf(d, t), Rule: d.Rule, Verdict: string(verdict)})
	}
	if verdict == manifest.Deny {
		return fault.New(fault.PermissionDenied, "tool_permission_denied: %s may not use this", caller.Name)
	}
	return nil
}

// refusal is what a caller is told: no more than it may know (SPEC-TOOLS 8.6).
func refusal(caller, tool string) error {
	return fault.New(fault.PermissionDenied, "tool_permission_denied: %s may not call %s", caller, tool)
}
